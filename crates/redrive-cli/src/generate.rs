//! What is generated from the types and the command line: schema, reference, completions, manual.

use anyhow::Context;
use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs, SchemaArgs, SchemaFormat};
use crate::output::{self, Exit};

pub fn schema(args: &SchemaArgs) -> anyhow::Result<Exit> {
    let text = match args.format {
        SchemaFormat::Json => format!("{:#}\n", redrive::config::schema()),
        SchemaFormat::Markdown => redrive::config::reference(),
    };
    output::print(&text)?;
    Ok(Exit::Fine)
}

pub fn completions(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "redrive", &mut script);
    output::print(&String::from_utf8(script).context("the script is not text")?)?;
    Ok(Exit::Fine)
}

pub fn man(args: &ManArgs) -> anyhow::Result<Exit> {
    let command = Cli::command();
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        clap_mangen::generate_to(command, dir)
            .with_context(|| format!("cannot write to {}", dir.display()))?;
        return Ok(Exit::Fine);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).context("cannot make the page")?;
    output::print(&String::from_utf8(page).context("the page is not text")?)?;
    Ok(Exit::Fine)
}
