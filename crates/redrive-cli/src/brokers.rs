//! Commands that ask the brokers.

use std::time::Duration;

use redrive::RunError;

use crate::output::{self, Exit};

/// Does what a command asks for, and tells why that could not be done.
pub fn ask(asking: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let result = runtime.block_on(asking);
    // Clients of brokers that do not answer would be waited for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match result.map_err(anyhow::Error::downcast) {
        Ok(exit) => Ok(exit),
        Err(Ok(error)) => Ok(could_not(error)),
        Err(Err(other)) => Err(other),
    }
}

fn could_not(error: RunError) -> Exit {
    let exit = match error {
        RunError::Refused(_)
        | RunError::NoAnswer { .. }
        | RunError::Kafka(_)
        | RunError::Fatal(_) => Exit::Failed,
        _ => Exit::Problems,
    };
    output::fail(&error.into());
    exit
}
