//! `redrive`: the retry engine for Apache Kafka, in front of a service in any language.

mod admin;
mod allocator;
mod args;
mod broker;
mod brokers;
mod check;
mod convert;
mod demo;
mod entities;
mod generate;
mod init;
mod input;
mod output;
mod plan;
mod run;
mod run_args;
mod signals;
mod topics;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::output::Exit;

fn main() -> ExitCode {
    allocator::set_up();
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Demo(args) => demo::run(args),
        Command::Init(args) => init::run(args),
        Command::Run(args) => run::run(args),
        Command::Broker(args) => broker::run(args),
        Command::Check(args) => check::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Topics(args) => topics::run(args),
        Command::Entities(args) => entities::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Status(args) => admin::status(args),
        Command::Pause(args) => admin::tell(args, redrive_admin::Command::Pause),
        Command::Resume(args) => admin::tell(args, redrive_admin::Command::Resume),
        Command::Schema(args) => generate::schema(args),
        Command::Completions(args) => generate::completions(args),
        Command::Man(args) => generate::man(args),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::fail(&error);
            Exit::WrongUse.into()
        }
    }
}
