//! "Did you mean": the known word nearest to an unknown one.

/// The candidate nearest to `word`, if it is near enough to be a slip.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    nearest_within((word.chars().count() / 3).clamp(1, 3), word, candidates)
}

/// The candidate nearest to `word`, if at most `allowed` changes lead from one to the other.
fn nearest_within<'a>(
    allowed: usize,
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = word.to_lowercase().replace(['-', ' '], "_");
    candidates
        .into_iter()
        .map(|it| (distance(&word, &it.to_lowercase().replace(['-', ' '], "_")), it))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, it)| it)
}

/// Insertions, deletions, replacements and swaps of neighbours from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = a[i - 1] == b[j - 1];
            let mut best = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + usize::from(!same));
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_their_word_and_strangers_do_not() {
        let keys = ["topic", "topics", "dead_letter", "max_overall_attempts", "delay"];
        for (word, expected) in [
            ("topc", Some("topic")),
            ("tpoic", Some("topic")),
            ("dead-letter", Some("dead_letter")),
            ("deadletter", Some("dead_letter")),
            ("max_overal_attempts", Some("max_overall_attempts")),
            ("Delay", Some("delay")),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, keys), expected, "{word}");
        }
    }
}
