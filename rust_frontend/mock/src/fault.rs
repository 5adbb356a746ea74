//! What goes wrong, and when: written as short texts, so that a command line can say it.

use std::str::FromStr;
use std::time::Duration;

use octavo_wire::frontend::AddRequest;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// The process ends without a word, before the step's tokens are sent.
    Die,
    /// No step for so long; the link lives.
    Stall(Duration),
    /// Nothing at all for so long: the link is silent too.
    Freeze(Duration),
    /// The step's message is counted and never sent.
    Lose,
    /// The workers die and are back after so long; requests go on.
    Fault(Duration),
    /// The workers die and do not come back.
    Fail,
}

/// A mishap at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub mishap: Mishap,
    /// Step, counted from 1 over the mock's life.
    pub step: u64,
    /// Again each so many steps; 0: once.
    pub every: u64,
}

impl Fault {
    /// Whether it happens at this step.
    #[must_use]
    pub fn hits(&self, step: u64) -> bool {
        match step.checked_sub(self.step) {
            None => false,
            Some(0) => true,
            Some(after) => self.every > 0 && after % self.every == 0,
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no fault; give KIND@STEP[/EVERY][:SECONDS], such as die@100, lose@10/5, stall@20:0.5; \
                 kinds are die, lose and fail, and with SECONDS stall, freeze and fault"
            )
        };
        let (kind, when) = text.split_once('@').ok_or_else(wrong)?;
        let (when, seconds) = match when.split_once(':') {
            Some((when, seconds)) => {
                let seconds = seconds.parse().map_err(|_| wrong())?;
                let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
                (when, Some(time))
            }
            None => (when, None),
        };
        let (step, every) = when.split_once('/').unwrap_or((when, "0"));
        let mishap = match (kind, seconds) {
            ("die", None) => Mishap::Die,
            ("lose", None) => Mishap::Lose,
            ("fail", None) => Mishap::Fail,
            ("stall", Some(time)) => Mishap::Stall(time),
            ("freeze", Some(time)) => Mishap::Freeze(time),
            ("fault", Some(time)) => Mishap::Fault(time),
            _ => return Err(wrong()),
        };
        let step = step.parse().map_err(|_| wrong())?;
        let every = every.parse().map_err(|_| wrong())?;
        if step == 0 {
            return Err(wrong());
        }
        Ok(Self {
            mishap,
            step,
            every,
        })
    }
}

/// Which requests a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The prompt has more tokens than this.
    PromptOver(u64),
    /// More output tokens than this are asked for.
    MaxTokensOver(u64),
    /// Each so-many-th request; at least 1.
    Every(u64),
}

/// A rule by which requests are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// As in `RequestRejected`: "invalid", "`too_long`" or "overloaded".
    pub code: String,
    /// Which requests.
    pub condition: Condition,
}

impl Reject {
    /// Whether it is about the request, the `count`-th that came, counted from 1.
    #[must_use]
    pub fn fits(&self, request: &AddRequest, count: u64) -> bool {
        match self.condition {
            Condition::PromptOver(limit) => request.prompt.len() as u64 > limit,
            Condition::MaxTokensOver(limit) => request.sampling.max_tokens > limit,
            Condition::Every(number) => count.is_multiple_of(number),
        }
    }
}

impl FromStr for Reject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no rule; give CODE:CONDITION, such as too_long:prompt>1000, invalid:max_tokens>64 or \
                 overloaded:every=10; codes are invalid, too_long and overloaded"
            )
        };
        let (code, condition) = text.split_once(':').ok_or_else(wrong)?;
        let at = condition.find(['>', '=']).ok_or_else(wrong)?;
        let (name, value) = condition.split_at(at);
        let number: u64 = value[1..].parse().map_err(|_| wrong())?;
        let condition = match (name, &value[..1]) {
            ("prompt", ">") => Condition::PromptOver(number),
            ("max_tokens", ">") => Condition::MaxTokensOver(number),
            ("every", "=") if number > 0 => Condition::Every(number),
            _ => return Err(wrong()),
        };
        if !["invalid", "too_long", "overloaded"].contains(&code) {
            return Err(wrong());
        }
        Ok(Self {
            code: code.to_owned(),
            condition,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_hit_their_steps() {
        let hits = |text: &str| -> Vec<u64> {
            let fault: Fault = text.parse().unwrap();
            (0..12).filter(|step| fault.hits(*step)).collect()
        };
        assert_eq!(hits("die@3"), [3]);
        assert_eq!(hits("lose@2/4"), [2, 6, 10]);
        let fault: Fault = "stall@7:0.25".parse().unwrap();
        assert_eq!(fault.mishap, Mishap::Stall(Duration::from_millis(250)));
    }

    #[test]
    fn what_is_no_fault_or_rule_is_named() {
        for text in [
            "",
            "die",
            "die@0",
            "die@x",
            "die@1:2",
            "stall@1",
            "stall@1:-1",
            "burn@1",
            "lose@1/x",
        ] {
            let error = text.parse::<Fault>().unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
        for text in [
            "",
            "invalid",
            "invalid:prompt",
            "odd:prompt>1",
            "invalid:prompt=1",
            "invalid:every=0",
            "invalid:prompt>x",
        ] {
            let error = text.parse::<Reject>().unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
