//! The fewest decimal digits that name one binary float.
//!
//! Steele and White's free-format algorithm on whole numbers of any size, so that it is exact for every width from four bits
//! to eighty: `value = mantissa · 2^exponent`, and any decimal closer to it than to its neighbours will do.

use std::cmp::Ordering;

/// Decimal digits and the power of ten of the first: `d.ddd · 10^power`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    pub(crate) digits: String,
    pub(crate) power: i32,
}

/// The shortest digits for `mantissa · 2^exponent`, which is not zero. `boundary` says that the neighbour below is only half
/// as far away as the one above: the smallest mantissa of an exponent that is not the least.
pub(crate) fn shortest(mantissa: u64, exponent: i32, boundary: bool) -> Decimal {
    // value = r / s, the neighbours' midpoints are (r + above) / s and (r - below) / s.
    let extra = if boundary { 2 } else { 1 };
    let up = exponent.max(0) as u32;
    let mut r = Whole::from(mantissa).shifted(up + extra);
    let mut s = Whole::from(1).shifted(exponent.min(0).unsigned_abs() + extra);
    let mut below = Whole::from(1).shifted(up);
    let mut above = Whole::from(1).shifted(up + extra - 1);
    // A tie goes to an even mantissa, so the midpoints themselves belong to it.
    let even = mantissa.is_multiple_of(2);
    let log = f64::from(exponent) * std::f64::consts::LOG10_2 + (mantissa as f64).log10();
    // Never too large; one too small is noticed below.
    let mut power = (log - 1e-9).ceil() as i32;
    if power >= 0 {
        s.times_power_of_ten(power as u32);
    } else {
        for number in [&mut r, &mut below, &mut above] {
            number.times_power_of_ten(power.unsigned_abs());
        }
    }
    let reaches = |r: &Whole, above: &Whole, s: &Whole| match r.plus(above).compare(s) {
        Ordering::Greater => true,
        Ordering::Equal => even,
        Ordering::Less => false,
    };
    if reaches(&r, &above, &s) {
        power += 1;
    } else {
        for number in [&mut r, &mut below, &mut above] {
            number.times(10);
        }
    }
    let mut digits = String::new();
    loop {
        let mut digit = 0u8;
        while r.compare(&s) != Ordering::Less {
            r.subtract(&s);
            digit += 1;
        }
        let low = match r.compare(&below) {
            Ordering::Less => true,
            Ordering::Equal => even,
            Ordering::Greater => false,
        };
        let high = reaches(&r, &above, &s);
        if low || high {
            if high && (!low || r.plus(&r).compare(&s) != Ordering::Less) {
                digit += 1;
            }
            digits.push(char::from(b'0' + digit));
            return Decimal {
                digits,
                power: power - 1,
            };
        }
        digits.push(char::from(b'0' + digit));
        for number in [&mut r, &mut below, &mut above] {
            number.times(10);
        }
    }
}

/// A whole number, least significant word first, no zero words at the top.
#[derive(Clone, Debug)]
struct Whole(Vec<u32>);

impl From<u64> for Whole {
    fn from(value: u64) -> Self {
        let mut number = Self(vec![value as u32, (value >> 32) as u32]);
        number.trim();
        number
    }
}

impl Whole {
    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn shifted(&self, bits: u32) -> Self {
        let mut words = vec![0; bits as usize / 32];
        let mut carry = 0u64;
        for word in &self.0 {
            let wide = u64::from(*word) << (bits % 32) | carry;
            words.push(wide as u32);
            carry = wide >> 32;
        }
        words.push(carry as u32);
        let mut number = Self(words);
        number.trim();
        number
    }

    fn times(&mut self, factor: u32) {
        let mut carry = 0u64;
        for word in &mut self.0 {
            let wide = u64::from(*word) * u64::from(factor) + carry;
            *word = wide as u32;
            carry = wide >> 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn times_power_of_ten(&mut self, power: u32) {
        for _ in 0..power / 9 {
            self.times(1_000_000_000);
        }
        self.times(10u32.pow(power % 9));
    }

    fn plus(&self, other: &Self) -> Self {
        let mut words = Vec::with_capacity(self.0.len().max(other.0.len()) + 1);
        let mut carry = 0u64;
        for i in 0..self.0.len().max(other.0.len()) {
            let word = |number: &Self| u64::from(number.0.get(i).copied().unwrap_or(0));
            let wide = word(self) + word(other) + carry;
            words.push(wide as u32);
            carry = wide >> 32;
        }
        words.push(carry as u32);
        let mut number = Self(words);
        number.trim();
        number
    }

    /// Takes a smaller number away.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = 0i64;
        for (i, word) in self.0.iter_mut().enumerate() {
            let wide = i64::from(*word) - i64::from(other.0.get(i).copied().unwrap_or(0)) - borrow;
            *word = wide as u32;
            borrow = i64::from(wide < 0);
        }
        self.trim();
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.0
            .len()
            .cmp(&other.0.len())
            .then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The standard library's shortest digits are the same ones.
        #[test]
        fn doubles_get_the_digits_of_the_standard_library(bits in 1u64..0x7ff0_0000_0000_0000) {
            let (exponent, fraction) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
            let (mantissa, boundary) = if exponent == 0 { (fraction, false) } else { (fraction | 1 << 52, fraction == 0 && exponent > 1) };
            let found = shortest(mantissa, exponent.max(1) - 1075, boundary);
            let text = format!("{:e}", f64::from_bits(bits));
            let (digits, power) = text.split_once('e').expect("scientific");
            prop_assert_eq!(found, Decimal { digits: digits.replace('.', ""), power: power.parse().expect("a number") });
        }
    }
}
