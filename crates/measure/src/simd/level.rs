//! Which instruction set the vector loops use: the best one of this CPU, detected once.
//!
//! `TWINSCOPE_SIMD=plain|avx2|avx512` forces one of them in builds with debug assertions, so that tests can run all paths on one machine.
//! Release builds ignore the variable: results must not depend on the environment, and nobody should run slow loops by accident.

use std::{env, ffi::OsStr, fmt, sync::OnceLock};

/// An instruction set that the loops are compiled for, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every CPU of the target has.
    Plain,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL and CD, on top of [`Level::Avx2`].
    Avx512,
}

impl Level {
    /// All levels, whether this CPU has them or not.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Avx2, Self::Avx512];

    /// As `TWINSCOPE_SIMD` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// The best level of this CPU. It has all lower ones too.
    #[cfg(target_arch = "x86_64")]
    pub fn best() -> Self {
        macro_rules! has {
            ($($feature:tt)*) => { true $(&& is_x86_feature_detected!($feature))* };
        }
        if !has!("avx2" "fma" "f16c") {
            Self::Plain
        } else if !has!("avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512cd" "popcnt") {
            Self::Avx2
        } else {
            Self::Avx512
        }
    }

    /// Other architectures have the plain loops alone.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn best() -> Self {
        Self::Plain
    }

    /// The level of this name. A wrong name or a level above `best` is an error, because a test that silently ran another path would prove
    /// nothing.
    fn forced(name: &OsStr, best: Self) -> Result<Self, String> {
        let level = Self::ALL.into_iter().find(|level| name == level.name());
        match level {
            None => Err(format!(
                "TWINSCOPE_SIMD={} is none of plain, avx2, avx512",
                name.display()
            )),
            Some(level) if level > best => Err(format!(
                "TWINSCOPE_SIMD={level}: this CPU has only {best} (with all of its parts)"
            )),
            Some(level) => Ok(level),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The level that all loops of this process use.
///
/// # Panics
/// With debug assertions, when `TWINSCOPE_SIMD` names no level of this CPU.
#[inline]
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let best = Level::best();
        if !cfg!(debug_assertions) {
            return best;
        }
        let forced = env::var_os("TWINSCOPE_SIMD").map(|name| Level::forced(&name, best));
        match forced.unwrap_or(Ok(best)) {
            Ok(level) => level,
            Err(message) => panic!("{message}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_cannot_be_forced_is_an_error() {
        let forced = |name: &str, best| Level::forced(OsStr::new(name), best);
        for level in Level::ALL {
            assert_eq!(forced(level.name(), Level::Avx512), Ok(level));
        }
        assert_eq!(forced("plain", Level::Plain), Ok(Level::Plain));
        for (name, message) in [
            ("avx512", "TWINSCOPE_SIMD=avx512: this CPU has only avx2"),
            ("AVX2", "TWINSCOPE_SIMD=AVX2 is none of plain, avx2, avx512"),
            ("", "TWINSCOPE_SIMD= is none of"),
        ] {
            let error = forced(name, Level::Avx2).expect_err(name);
            assert!(error.starts_with(message), "{error}");
        }
    }
}
