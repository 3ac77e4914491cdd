//! The engines that are part of this program. Each does one turn, in a process of its own.

pub(crate) mod nap;
pub(crate) mod raw;
pub(crate) mod redrive;

use anyhow::Result;

use crate::measure::Sample;
use crate::turn::{Engine, Turn};

/// Does the turn.
pub(crate) fn run(engine: Engine, kafka: &str, mut turn: Turn) -> Result<Sample> {
    anyhow::ensure!(!turn.topic.is_empty(), "--engine needs --topic");
    if turn.name.is_empty() {
        turn.name = format!("alone-{}", std::process::id());
    }
    match engine {
        Engine::Poll => raw::poll(kafka, &turn),
        Engine::Batch => raw::batch(kafka, &turn),
        Engine::Pipe => raw::pipe(kafka, &turn),
        Engine::Redrive => redrive::run(kafka, &turn),
        Engine::Ordered => {
            turn.ordered = true;
            redrive::run(kafka, &turn)
        }
        Engine::Spring | Engine::SpringTuned | Engine::Parallel => {
            anyhow::bail!("{} is a program of its own: see bench/run", engine.name())
        }
    }
}
