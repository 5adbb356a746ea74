//! Numbers as Python writes them.

use std::fmt::Write;

/// Appends a float as Python's `repr` does: the shortest digits that read back, in scientific form where the exponent
/// is below -4 or at least 16. Infinities and NaN in the spelling given.
pub(crate) fn float(out: &mut String, value: f64, infinity: &str, nan: &str) {
    if value.is_nan() {
        out.push_str(nan);
    } else if value.is_infinite() {
        out.push_str(if value < 0.0 { "-" } else { "" });
        out.push_str(infinity);
    } else {
        let short = format!("{value:e}");
        let (digits, exponent) = short.split_once('e').unwrap_or((&short, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        if (-4..16).contains(&exponent) {
            let plain = value.to_string();
            out.push_str(&plain);
            if !plain.contains('.') {
                out.push_str(".0");
            }
        } else {
            let sign = if exponent < 0 { '-' } else { '+' };
            // Writing to a String cannot fail.
            let _ = write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::float;

    #[test]
    fn floats_read_as_in_python() {
        for (value, wanted) in [
            (0.75, "0.75"),
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e-7, "1e-07"),
            (1e100, "1e+100"),
            (123_456_789.125, "123456789.125"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            let mut out = String::new();
            float(&mut out, value, "inf", "nan");
            assert_eq!(out, wanted);
        }
    }
}
