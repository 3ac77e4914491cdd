//! A port of one's choice in front of a broker that chooses its own: what comes in is passed on byte by byte.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// Pauses after a connection that could not be taken, such as for want of files.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

pub(super) struct Door {
    at: SocketAddr,
    inside: Arc<Inside>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What the threads share.
#[derive(Default)]
struct Inside {
    is_closed: AtomicBool,
    /// Both ends of every connection, with a number of its own.
    open: Mutex<Vec<(u64, TcpStream, TcpStream)>>,
}

impl Door {
    /// Listens on a port of the loopback address, 0 for any, and passes on to the broker behind it.
    pub(super) fn open(port: u16, to: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let at = listener.local_addr()?;
        let inside: Arc<Inside> = Arc::default();
        let shared = Arc::clone(&inside);
        let listen = move || shared.listen(&listener, to);
        let thread = thread::Builder::new().name("redrive-door".to_owned()).spawn(listen)?;
        Ok(Self { at, inside, thread: Some(thread) })
    }

    pub(super) fn port(&self) -> u16 {
        self.at.port()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.inside.is_closed.store(true, Ordering::Release);
        // Whoever waits for a connection is woken by one.
        drop(TcpStream::connect(self.at));
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
        self.inside.open().drain(..).for_each(|it| shut(&it));
    }
}

impl Inside {
    fn open(&self) -> MutexGuard<'_, Vec<(u64, TcpStream, TcpStream)>> {
        self.open.lock()
    }

    fn listen(self: &Arc<Self>, listener: &TcpListener, to: SocketAddr) {
        for number in 0.. {
            let taken = listener.accept();
            if self.is_closed.load(Ordering::Acquire) {
                return;
            }
            let inside = Arc::clone(self);
            // The broker takes few connections at once, and one that waits for it must not hold up the others.
            let started =
                taken.and_then(|(client, _)| spawn(move || _ = inside.join(number, client, to)));
            // One that cannot be passed on is closed, and its client tries again.
            if started.is_err() {
                thread::sleep(AFTER_FAILURE);
            }
        }
    }

    /// Joins a client and the broker until one of them goes, with a thread for each direction.
    fn join(self: &Arc<Self>, number: u64, client: TcpStream, to: SocketAddr) -> io::Result<()> {
        let broker = TcpStream::connect(to)?;
        client.set_nodelay(true)?;
        broker.set_nodelay(true)?;
        let there = (client.try_clone()?, broker.try_clone()?);
        let back = (broker.try_clone()?, client.try_clone()?);
        self.open().push((number, client, broker));
        // It may have been closed just before.
        if self.is_closed.load(Ordering::Acquire) {
            self.close(number);
        }
        let inside = Arc::clone(self);
        if spawn(move || inside.pass(number, back)).is_err() {
            self.close(number);
        }
        self.pass(number, there);
        Ok(())
    }

    /// Passes on what comes. Kafka's connections end as a whole.
    fn pass(&self, number: u64, (mut from, mut to): (TcpStream, TcpStream)) {
        _ = io::copy(&mut from, &mut to);
        self.close(number);
    }

    fn close(&self, number: u64) {
        let mut open = self.open();
        for it in open.iter().filter(|it| it.0 == number) {
            shut(it);
        }
        open.retain(|it| it.0 != number);
    }
}

fn shut((_, one, other): &(u64, TcpStream, TcpStream)) {
    _ = one.shutdown(Shutdown::Both);
    _ = other.shutdown(Shutdown::Both);
}

fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("redrive-door".to_owned()).spawn(run).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn what_comes_in_is_passed_on_until_the_door_is_closed() {
        let broker = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let door = Door::open(0, broker.local_addr().unwrap()).unwrap();
        let mut client = TcpStream::connect(door.at).unwrap();
        let (mut other, _) = broker.accept().unwrap();
        client.write_all(b"ping").unwrap();
        let mut read = [0; 4];
        other.read_exact(&mut read).unwrap();
        other.write_all(&read).unwrap();
        client.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"ping");
        let at = door.at;
        drop(door);
        assert_eq!(client.read(&mut read).unwrap(), 0, "it is closed");
        assert!(TcpStream::connect(at).is_err());
        // The port is free at once.
        assert!(TcpListener::bind(at).is_ok());
    }

    #[test]
    fn when_one_end_goes_the_other_is_let_go() {
        let broker = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let door = Door::open(0, broker.local_addr().unwrap()).unwrap();
        let client = TcpStream::connect(door.at).unwrap();
        let (mut other, _) = broker.accept().unwrap();
        drop(client);
        assert_eq!(other.read(&mut [0; 4]).unwrap(), 0);
        while !door.inside.open().is_empty() {
            thread::yield_now();
        }
    }
}
