//! The plan as JSON, one step for each delivery or relay hop.

use redrive::{Span, Step};
use serde_json::{Value, json};

use super::Plan;

pub fn write(plan: &Plan<'_>) -> String {
    let steps: Vec<_> =
        plan.steps.iter().enumerate().map(|(index, it)| step(index + 1, it)).collect();
    let policy = plan.steps.first().and_then(|it| it.policy.as_deref());
    let plan = json!({ "flow": &**plan.flow.source(), "policy": policy, "steps": steps });
    format!("{plan:#}\n")
}

fn step(number: usize, step: &Step) -> Value {
    json!({
        "step": number,
        "from": step.from,
        "policy": step.policy,
        "runs": step.runs,
        "then": super::word(step.then),
        "to": step.to,
        "attempt_in_tier": step.attempt_in_tier,
        "policy_attempt": step.policy_attempt,
        "overall_attempt": step.overall_attempt,
        "delay_ms": span(step.delay),
        "elapsed_ms": span(step.elapsed),
    })
}

fn span(span: Span) -> Value {
    json!({ "min": super::millis(span.min), "max": super::millis(span.max) })
}
