//! `redrive topics`: what is there, what is missing and what differs, and making what is missing.

mod json;
mod text;

use redrive::RunError;
use redrive::config::Config;
use redrive::topics::{Made, Plan, Topics};

use crate::args::{Format, TopicsApplyArgs, TopicsArgs, TopicsCommand, TopicsPlanArgs, WhereArgs};
use crate::output::{self, Exit, plural};
use crate::{brokers, input};

pub fn run(args: &TopicsArgs) -> anyhow::Result<Exit> {
    let place = match &args.command {
        TopicsCommand::Plan(args) => &args.place,
        TopicsCommand::Apply(args) => &args.place,
    };
    let input = input::load(&place.file.config, None, None)?;
    output::tell(&output::problems(&input.name, &input.loaded.problems));
    let Some(config) = &input.loaded.config else {
        return Ok(Exit::Problems);
    };
    brokers::ask(async {
        match &args.command {
            TopicsCommand::Plan(args) => plan(args, config).await,
            TopicsCommand::Apply(args) => apply(args, config).await,
        }
    })
}

async fn plan(args: &TopicsPlanArgs, config: &Config) -> anyhow::Result<Exit> {
    let plan = connect(&args.place, config).await?.plan().await?;
    output::print(&match args.place.format {
        Format::Text => text::plan(&plan),
        Format::Json => json::write(&plan, None),
    })?;
    let is_fine = plan.is_complete() && !(args.strict && plan.differences().next().is_some());
    Ok(if is_fine { Exit::Fine } else { Exit::Problems })
}

async fn apply(args: &TopicsApplyArgs, config: &Config) -> anyhow::Result<Exit> {
    let (plan, made) = make(args, config).await?;
    output::print(&match args.place.format {
        Format::Text => text::applied(&plan, &made, args.dry_run),
        Format::Json => json::write(&plan, Some(&made)),
    })?;
    let is_made = made.iter().all(|it| it.result.is_ok());
    // What would be made is still missing after a dry run, and all is well.
    let is_there = plan.is_complete() || (args.dry_run && text::is_makeable(&plan));
    Ok(if is_made && is_there { Exit::Fine } else { Exit::Problems })
}

/// Makes what is missing, and looks again.
async fn make(args: &TopicsApplyArgs, config: &Config) -> Result<(Plan, Vec<Made>), RunError> {
    let topics = connect(&args.place, config).await?;
    let plan = topics.plan().await?;
    let is_text = args.place.format == Format::Text;
    let missing = text::makeable(&plan).count();
    if is_text && missing > 0 && !args.dry_run {
        output::tell(&format!("making {}\n", plural(missing, "topic")));
    }
    let mut printed = Ok(());
    let made = topics
        .apply(&plan, args.dry_run, |made| {
            if is_text && printed.is_ok() {
                printed = output::print(&text::made(&plan, made));
            }
        })
        .await;
    if args.dry_run {
        return Ok((plan, made));
    }
    Ok((topics.plan().await?, made))
}

async fn connect(args: &WhereArgs, config: &Config) -> Result<Topics, RunError> {
    let topics = Topics::connect(config, args.timeout).await?;
    Ok(match args.create_sources {
        Some(partitions) => topics.with_created_sources(i32::from(partitions.get())),
        None => topics,
    })
}
