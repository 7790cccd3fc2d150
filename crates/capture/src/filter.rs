//! What is recorded: by name, role, step and call.

use crate::Role;
use std::ops::{Bound, RangeBounds};

/// Everything passes until something is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    include: Vec<String>,
    exclude: Vec<String>,
    roles: Vec<Role>,
    without_roles: Vec<Role>,
    steps: Vec<(u64, u64)>,
    every_step: Option<u64>,
    calls: Option<u64>,
}

impl Filter {
    /// Names that match one of these patterns: `*` is any text, `?` one character.
    pub(crate) fn include(&mut self, pattern: &str) {
        self.include.push(pattern.to_owned());
    }

    /// Names that match are left out, also included ones.
    pub(crate) fn exclude(&mut self, pattern: &str) {
        self.exclude.push(pattern.to_owned());
    }

    pub(crate) fn roles(&mut self, roles: &[Role]) {
        self.roles.extend_from_slice(roles);
    }

    pub(crate) fn without_roles(&mut self, roles: &[Role]) {
        self.without_roles.extend_from_slice(roles);
    }

    pub(crate) fn steps(&mut self, steps: impl RangeBounds<u64>) {
        let first = match steps.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match steps.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        self.steps.push((first, end));
    }

    /// Steps 0, n, 2n, ...
    pub(crate) fn every_step(&mut self, n: u64) {
        self.every_step = Some(n.max(1));
    }

    /// The first n calls of each name in a step.
    pub(crate) fn calls(&mut self, n: u64) {
        self.calls = Some(n);
    }

    pub(crate) fn call_limit(&self) -> Option<u64> {
        self.calls
    }

    pub(crate) fn takes_step(&self, step: u64) -> bool {
        let inside = self.steps.is_empty()
            || self
                .steps
                .iter()
                .any(|(first, end)| (*first..*end).contains(&step));
        inside && self.every_step.is_none_or(|n| step.is_multiple_of(n))
    }

    pub(crate) fn takes_name(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }

    pub(crate) fn takes_role(&self, role: Role) -> bool {
        (self.roles.is_empty() || self.roles.contains(&role)) && !self.without_roles.contains(&role)
    }
}

/// Whether the whole name matches. Linear in the name for each `*`: the last one seen is where it goes on after a mismatch.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match &mut star {
                Some((at, from)) => {
                    *from += 1;
                    (p, n) = (*at + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text_and_the_whole_name_must_match() {
        for (pattern, name) in [
            ("*", ""),
            ("encoder.**", "encoder.layer.0"),
            ("*attn*", "layers.0.attn.q"),
            ("a?c", "abc"),
            ("*.0.*.q", "l.0.1.0.x.q"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "a"),
            ("encoder", "encoder.layer"),
            ("a?c", "ac"),
            ("*.q", "x.q.k"),
            ("layers.1", "layers.10"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn excluding_wins_over_including() {
        let mut filter = Filter::default();
        filter.include("layers.*");
        filter.exclude("*.attn");
        assert!(filter.takes_name("layers.0.mlp"));
        assert!(!filter.takes_name("layers.0.attn"));
        assert!(!filter.takes_name("embed"));
    }

    #[test]
    fn steps_are_ranges_and_every_so_many() {
        let mut filter = Filter::default();
        assert!(filter.takes_step(17));
        filter.steps(2..=4);
        filter.steps(10..);
        filter.every_step(2);
        assert_eq!(
            (0..14)
                .filter(|step| filter.takes_step(*step))
                .collect::<Vec<_>>(),
            [2, 4, 10, 12]
        );
    }
}
