//! The reason for a choice, in one sentence, with the numbers that make it.

use super::{Expected, Question, Scheme};
use crate::ModelError;

/// Why the recommended candidate.
pub(super) fn sentence(
    question: &Question,
    sorted: &[Expected],
    recommended: usize,
    other_family_worse: f64,
) -> Result<String, ModelError> {
    let choice = &sorted[recommended];
    let size = question.sizes_bytes.iter().copied().max().unwrap_or(1);
    let losses = question.losses()?;
    let loss = losses.iter().sum::<f64>() / losses.len() as f64;
    let transfer = choice.candidate.transfer(question, size, loss)?;
    let lost_chunks = transfer.chunks() as f64 * transfer.loss().probability();
    let (injection, rtt) = (time(transfer.injection_s()), time(question.rtt_s));
    let lost = if lost_chunks < 0.01 {
        format!("a message loses a chunk once in {:.0} times", 1.0 / lost_chunks.max(1e-12))
    } else {
        format!("a message loses {} of its {} chunks", short(lost_chunks), transfer.chunks())
    };
    if lost_chunks == 0.0 {
        return Ok("without loss there is nothing to repair, so the simplest mode is enough".into());
    }
    let against = if other_family_worse.is_finite() {
        format!("{:.0} %", (other_family_worse * 100.0).max(0.0))
    } else {
        "much".to_owned()
    };
    Ok(match choice.candidate.scheme {
        Scheme::Repeat { .. } if other_family_worse < super::DOES_NOT_MATTER => format!(
            "{lost} and a repair's {rtt} hide behind or beside {injection} of sending, so all \
             good choices are within {:.0} % and the one without parity is the simplest",
            super::DOES_NOT_MATTER * 100.0
        ),
        Scheme::Repeat { .. } | Scheme::Auto(_) => format!(
            "{lost}, whose repair costs {rtt} next to {injection} of sending; the parity of the \
             best code costs every message more, {against} in all"
        ),
        Scheme::Code(code) => {
            let parity_s = transfer.injection_s() * f64::from(code.m()) / f64::from(code.k());
            format!(
                "{lost}, and each round of repair would cost {rtt}, while parity repairs on \
                 arrival for at most {} of sending: repeating takes {against} longer",
                time(parity_s)
            )
        }
    })
}

fn short(number: f64) -> String {
    if number >= 10.0 { format!("{number:.0}") } else { format!("{number:.2}") }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}
