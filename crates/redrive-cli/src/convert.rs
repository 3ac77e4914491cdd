//! `redrive convert`: another library's settings in Redrive's own form.

use anyhow::bail;

use crate::args::ConvertArgs;
use crate::input;
use crate::output::{self, Exit};

pub fn run(args: &ConvertArgs) -> anyhow::Result<Exit> {
    let input = input::load(&args.file, args.topic.as_deref(), args.group.as_deref())?;
    let loaded = &input.loaded;
    match &loaded.converted {
        Some(yaml) => {
            output::tell(&output::problems(&input.name, &loaded.problems));
            if loaded.config.is_none() {
                return Ok(Exit::Problems);
            }
            output::print(yaml)?;
            Ok(Exit::Fine)
        }
        None if loaded.config.is_some() => {
            bail!("{} is a Redrive config already: use it as it is", input.name)
        }
        None => {
            output::tell(&output::problems(&input.name, &loaded.problems));
            Ok(Exit::Problems)
        }
    }
}
