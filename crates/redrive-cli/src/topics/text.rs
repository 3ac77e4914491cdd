//! Topics as people read them.

use std::fmt::Write;

use redrive::topics::{
    Access, Made, MadeHow, NeededTo, Plan, Purpose, Resource, Status, Target, Topic,
};

use crate::output::{BOLD, CYAN, DIM, GREEN, RED, YELLOW, plural, styled};

/// Everything: the topics, what differs, and what must be allowed.
pub fn plan(plan: &Plan) -> String {
    let mut text = heading(plan);
    topics(&mut text, plan, |_| true);
    text.push_str(&warning(plan));
    text.push_str(&summary(plan));
    text.push_str(&access(plan));
    text
}

/// What is left to say after topics were made.
pub fn applied(plan: &Plan, all: &[Made], is_dry_run: bool) -> String {
    let mut text = String::new();
    let is_told =
        |it: &Topic| !it.differences.is_empty() || !matches!(it.status, Status::Present { .. });
    // What a dry run would make was told one by one.
    let is_told =
        |it: &Topic| is_told(it) && !(is_dry_run && matches!(it.status, Status::Missing(_)));
    if plan.topics.iter().any(is_told) {
        text.push('\n');
        topics(&mut text, plan, is_told);
    }
    text.push_str(&warning(plan));
    let count = |how| all.iter().filter(|it| it.result == Ok(how)).count();
    let failed = all.iter().filter(|it| it.result.is_err()).count();
    let made = if is_dry_run {
        format!("{} would be made", plural(count(MadeHow::WouldBeMade), "topic"))
    } else {
        format!("{} made", plural(count(MadeHow::Made), "topic"))
    };
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    let _ = writeln!(text, "\n{made}{failed}");
    if !is_dry_run {
        text.push_str(&summary(plan));
    }
    text
}

/// The topics that can be made.
pub fn makeable(plan: &Plan) -> impl Iterator<Item = &Topic> {
    plan.topics.iter().filter(|it| matches!(it.status, Status::Missing(_)))
}

/// Whether all that is missing can be made, and the rest can be used.
pub fn is_makeable(plan: &Plan) -> bool {
    plan.missing().all(|it| matches!(it.status, Status::Missing(_)))
        && !plan.differences().any(|it| it.is_refused)
}

/// What became of a topic.
pub fn made(plan: &Plan, made: &Made) -> String {
    let target = plan.topics.iter().find(|it| it.name == made.topic);
    let shape = match target.map(|it| &it.status) {
        Some(Status::Missing(target)) => {
            format!("{}, replication {}", partitions(target.partitions), target.replication)
        }
        _ => String::new(),
    };
    let topic = styled(CYAN, &made.topic);
    match &made.result {
        Ok(MadeHow::Made) => format!("{} {topic} is made: {shape}\n", styled(GREEN, "✔")),
        Ok(MadeHow::WouldBeMade) => {
            format!("{} {topic} would be made: {shape}\n", styled(GREEN, "+"))
        }
        Ok(_) => format!("{} {topic} is there already\n", styled(GREEN, "✔")),
        Err(error) => format!("{} {topic} is not made: {error}\n", styled(RED, "✖")),
    }
}

fn heading(plan: &Plan) -> String {
    let group = styled(BOLD, &plan.group);
    format!("{group} on {}: {}\n\n", plan.bootstrap, plural(plan.brokers, "broker"))
}

fn partitions(count: i32) -> String {
    plural(usize::try_from(count).unwrap_or(0), "partition")
}

fn topics(text: &mut String, plan: &Plan, is_told: impl Fn(&Topic) -> bool) {
    let told: Vec<_> = plan.topics.iter().filter(|it| is_told(it)).collect();
    let width = told.iter().map(|it| it.name.len()).max().unwrap_or(0).min(60);
    for topic in told {
        let is_refused = topic.differences.iter().any(|it| it.is_refused);
        let mark = match &topic.status {
            Status::Present { .. } if is_refused => styled(RED, "✖"),
            Status::Present { .. } if !topic.differences.is_empty() => styled(YELLOW, "!"),
            Status::Present { .. } => styled(GREEN, "✔"),
            Status::Missing(_) => styled(YELLOW, "+"),
            _ => styled(RED, "✖"),
        };
        let shape = |count: i32, replication: i32| {
            format!("{:<14} replication {replication}", partitions(count))
        };
        let state = match &topic.status {
            Status::Present { partitions, replication } => shape(*partitions, *replication),
            Status::Missing(it) => {
                format!("{}  {}", shape(it.partitions, it.replication), styled(YELLOW, "missing"))
            }
            Status::Blocked(_) => styled(RED, "missing"),
            _ => styled(RED, "may not be looked at"),
        };
        let name = styled(CYAN, format!("{:<width$}", topic.name));
        let _ = writeln!(text, "  {mark} {name}  {:<11}  {state}", topic.purpose);
        details(text, topic);
    }
}

fn details(text: &mut String, topic: &Topic) {
    match &topic.status {
        Status::Missing(target) => target_lines(text, target),
        Status::Blocked(why) => _ = writeln!(text, "      {why}"),
        Status::Hidden => {
            let _ = writeln!(text, "      {} allow what is listed below", styled(DIM, "→"));
        }
        _ => {}
    }
    for it in &topic.differences {
        let (setting, is, should) = (it.setting, &it.is, &it.should);
        let _ = writeln!(text, "      {setting} is {is}, should be {should}");
        let refused = if it.is_refused { "; a consumer refuses to run with it" } else { "" };
        let _ = writeln!(text, "        {}{refused}", it.meaning);
        let _ = writeln!(text, "        {} {}", styled(DIM, "→"), it.fix);
    }
}

fn target_lines(text: &mut String, target: &Target) {
    let settings: Vec<_> =
        target.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if !settings.is_empty() {
        let _ = writeln!(text, "      {}", styled(DIM, settings.join(" ")));
    }
    for note in &target.notes {
        let _ = writeln!(text, "      {} {note}", styled(DIM, "note:"));
    }
}

fn warning(plan: &Plan) -> String {
    if plan.auto_creates != Some(true) {
        return String::new();
    }
    format!(
        "\n{}: the brokers make topics by themselves, so that a producer with a typo makes one with the wrong settings\n  {} set `auto.create.topics.enable=false` on the brokers\n",
        styled(YELLOW, "warning"),
        styled(DIM, "→")
    )
}

fn summary(plan: &Plan) -> String {
    let (all, missing) = (plan.topics.len(), plan.missing().count());
    let (makeable, is_makeable) = (makeable(plan).count(), is_makeable(plan));
    let has = |is_it: fn(&Topic) -> bool| plan.missing().any(is_it);
    let mut text = match missing {
        0 => format!("all {all} topics are there"),
        1 => format!("1 of {all} topics is missing"),
        _ => format!("{missing} of {all} topics are missing"),
    };
    match makeable {
        0 => {}
        _ if is_makeable => text.push_str(": `redrive topics apply` makes what is missing"),
        _ => _ = write!(text, ": `redrive topics apply` makes {makeable} of them"),
    }
    if has(|it| it.purpose == Purpose::Source && matches!(it.status, Status::Blocked(_))) {
        text.push_str("; source topics come first, since the others follow from them");
    }
    if has(|it| it.status == Status::Hidden) {
        text.push_str("; those that may not be looked at may be there");
    }
    match plan.topics.iter().filter(|it| !it.differences.is_empty()).count() {
        0 => {}
        1 => text.push_str("; 1 topic differs"),
        differ => _ = write!(text, "; {differ} topics differ"),
    }
    format!("\n{text}\n")
}

/// What must be allowed, as commands of Kafka's own tool.
fn access(plan: &Plan) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "\nWhere the brokers ask who one is, these must be allowed; NAME is the user's name:"
    );
    for (needed_to, heading) in [(NeededTo::Run, "to run"), (NeededTo::Apply, "to make topics")] {
        let _ = writeln!(text, "\n  {}", styled(BOLD, heading));
        for command in commands(plan, needed_to) {
            let _ = writeln!(text, "  {command}");
        }
    }
    text
}

/// One command for all that may be done alike.
pub fn commands(plan: &Plan, needed_to: NeededTo) -> Vec<String> {
    let mut alike: Vec<(&Access, Vec<String>)> = Vec::new();
    for access in plan.access.iter().filter(|it| it.needed_to == needed_to) {
        let is_alike = |it: &Access| {
            (it.resource, it.is_prefix, &it.operations)
                == (access.resource, access.is_prefix, &access.operations)
        };
        let flag = match access.resource {
            Resource::Topic => "--topic",
            Resource::Group => "--group",
            _ => "--transactional-id",
        };
        let name = format!("{flag} {}", quoted(&access.name));
        match alike.iter_mut().find(|it| is_alike(it.0)) {
            Some(found) => found.1.push(name),
            None => alike.push((access, vec![name])),
        }
    }
    let brokers = plan.bootstrap.split(',').next().unwrap_or("BROKER").trim();
    let command = |(access, names): (&Access, Vec<String>)| {
        let operations: Vec<_> =
            access.operations.iter().map(|it| format!("--operation {it}")).collect();
        let prefixed = if access.is_prefix { " --resource-pattern-type prefixed" } else { "" };
        format!(
            "kafka-acls.sh --bootstrap-server {brokers} --add --allow-principal User:NAME {}{prefixed} {}",
            operations.join(" "),
            names.join(" ")
        )
    };
    alike.into_iter().map(command).collect()
}

/// For a shell.
fn quoted(name: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "._-/:@".contains(it);
    if !name.is_empty() && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}
