//! A wire to a broker that can be cut: the broker goes on, and whoever reads through the wire finds it gone, with answers lost on
//! the way.

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::broker::Broker;
use crate::own::{OwnBroker, free_port};

/// A broker that is reached by a wire alone.
#[derive(Debug)]
pub struct Wired {
    broker: Broker,
    is_cut: watch::Sender<bool>,
    /// It ends with this.
    _own: OwnBroker,
}

impl Wired {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let wire = listener.local_addr()?;
        let port = free_port()?;
        let is_cut = watch::Sender::new(false);
        tokio::spawn(carry(listener, port, is_cut.clone()));
        let own = tokio::task::spawn_blocking(move || {
            // Clients go where the broker says that it is.
            let advertised = format!("advertised.listeners=PLAINTEXT://{wire}");
            OwnBroker::start(&["--port", &port.to_string(), "--set", &advertised])
        });
        Ok(Self { broker: Broker::at(wire.to_string()), is_cut, _own: own.await?? })
    }

    /// The broker, by the wire.
    pub fn broker(&self) -> Broker {
        self.broker.clone()
    }

    /// Ends all connections at once; new ones end as soon as they begin.
    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// Lets new connections last.
    pub fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

/// Carries what comes to the broker, and its answers back, as long as the wire is whole.
async fn carry(listener: TcpListener, port: u16, is_cut: watch::Sender<bool>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let mut is_cut = is_cut.subscribe();
        tokio::spawn(async move {
            let carried = async {
                let mut broker = TcpStream::connect(("127.0.0.1", port)).await?;
                copy_bidirectional(&mut client, &mut broker).await
            };
            tokio::select! {
                biased;
                _ = is_cut.wait_for(|it| *it) => {}
                _ = carried => {}
            }
        });
    }
}
