//! Topics as programs read them.

use redrive::topics::{Access, Difference, Made, MadeHow, NeededTo, Plan, Resource, Status, Topic};
use serde_json::{Map, Value, json};

pub fn write(plan: &Plan, made: Option<&[Made]>) -> String {
    let mut report = json!({
        "group": plan.group,
        "bootstrap": plan.bootstrap,
        "brokers": plan.brokers,
        "auto_create": plan.auto_creates,
        "complete": plan.is_complete(),
        "topics": plan.topics.iter().map(topic).collect::<Vec<_>>(),
        "acls": plan.access.iter().map(access).collect::<Vec<_>>(),
    });
    if let (Some(made), Some(report)) = (made, report.as_object_mut()) {
        report.insert("made".to_owned(), made.iter().map(one_made).collect());
    }
    format!("{report:#}\n")
}

fn topic(topic: &Topic) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| _ = object.insert(key.to_owned(), value);
    put("name", (&*topic.name).into());
    put("purpose", topic.purpose.as_str().into());
    put("flows", topic.flows.iter().map(|it| Value::from(&**it)).collect());
    match &topic.status {
        Status::Present { partitions, replication } => {
            put("status", "present".into());
            put("partitions", (*partitions).into());
            put("replication", (*replication).into());
        }
        Status::Missing(target) => {
            put("status", "missing".into());
            put("partitions", target.partitions.into());
            put("replication", target.replication.into());
            let settings = target
                .settings
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.as_str().into()));
            put("settings", Value::Object(settings.collect()));
            put("notes", target.notes.clone().into());
        }
        Status::Blocked(reason) => {
            put("status", "blocked".into());
            put("reason", reason.as_str().into());
        }
        _ => put("status", "hidden".into()),
    }
    put("differences", topic.differences.iter().map(difference).collect());
    Value::Object(object)
}

fn difference(it: &Difference) -> Value {
    json!({
        "setting": it.setting,
        "is": it.is,
        "should": it.should,
        "meaning": it.meaning,
        "fix": it.fix,
        "refused": it.is_refused,
    })
}

fn access(it: &Access) -> Value {
    json!({
        "needed_to": match it.needed_to {
            NeededTo::Run => "run",
            _ => "apply",
        },
        "resource": match it.resource {
            Resource::Topic => "topic",
            Resource::Group => "group",
            _ => "transactional_id",
        },
        "name": it.name,
        "pattern": if it.is_prefix { "prefixed" } else { "literal" },
        "operations": it.operations,
    })
}

fn one_made(it: &Made) -> Value {
    let result = match &it.result {
        Ok(MadeHow::Made) => "made",
        Ok(MadeHow::WouldBeMade) => "would_be_made",
        Ok(_) => "was_there",
        Err(_) => "failed",
    };
    json!({ "topic": &*it.topic, "result": result, "error": it.result.as_ref().err() })
}
