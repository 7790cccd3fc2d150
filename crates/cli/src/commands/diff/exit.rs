//! What a report means to a script: 0 agree, 1 differ, 2 no answer.

use crate::NOT_DONE;
use twinscope_report::{Comparison, MISSING_RANKS, Pair, Unmeasured, Verdict};

const AGREE: u8 = 0;
const DIFFER: u8 = 1;

/// The contract's exit codes. A divergence that was found counts more than what could not be read; being stopped counts more than both.
pub(super) fn code(report: &Comparison, allow_missing: bool) -> u8 {
    let any = |is: &dyn Fn(&Pair) -> bool| report.pairs.iter().any(is);
    let ranks = report
        .findings
        .iter()
        .filter(|finding| finding.kind == MISSING_RANKS)
        .count();
    let missing = report.only_reference.len() + report.only_candidate.len() + ranks;
    let unread = !report.skipped.is_empty()
        || report.findings.iter().any(|finding| finding.is_attack())
        || any(&|pair| pair.unmeasured == Some(Unmeasured::Unreadable));
    if report.partial || report.pairs.is_empty() {
        NOT_DONE
    } else if any(&|pair| pair.verdict == Verdict::Diverged) {
        DIFFER
    } else if unread {
        NOT_DONE
    } else if any(&|pair| !pair.verdict.agrees()) || (missing > 0 && !allow_missing) {
        DIFFER
    } else {
        AGREE
    }
}
