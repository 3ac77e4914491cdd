//! Medians and spreads.

/// The element that so great a share of a sorted list is not above: 0 is the first, 1 the last.
pub(crate) fn part<T: Copy + Default>(sorted: &[T], share: f64) -> T {
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length is one"
    )]
    let index = ((sorted.len() as f64 * share).ceil() as usize).saturating_sub(1);
    sorted.get(index.min(last)).copied().unwrap_or_default()
}

/// The middle one; of an even number, the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle).copied()?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some((sorted.get(middle.checked_sub(1)?)? + upper) / 2.0)
}

/// The lowest and the highest.
pub(crate) fn bounds(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some((low, high))
}

/// How far apart the highest and the lowest are, against the median.
pub(crate) fn spread(values: &[f64]) -> Option<f64> {
    let ((low, high), median) = (bounds(values)?, median(values)?);
    (median != 0.0).then(|| (high - low) / median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn the_spread_is_a_share_of_the_median() {
        assert_eq!(spread(&[9.0, 10.0, 12.0]), Some(0.3));
        assert_eq!(spread(&[0.0, 0.0]), None);
    }

    #[test]
    fn parts_go_from_the_first_to_the_last() {
        let list: Vec<i64> = (1..=100).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|it| part(&list, it)), [1, 50, 99, 100]);
        assert_eq!(part::<i64>(&[], 0.5), 0);
    }
}
