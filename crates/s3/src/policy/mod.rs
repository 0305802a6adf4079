//! Bucket policies: a subset of AWS's language that is enforced as a whole.
//!
//! Promises: a policy that was accepted is obeyed in every statement: Allow and Deny, principals `*` or accounts, s3
//! actions and resources with `*` and `?`; Deny wins. What the subset lacks (Condition, NotAction, NotResource,
//! NotPrincipal, variables) is refused when the policy is put, so it is never stored and ignored.
//! Refuses to know: requests, and what anyone may do without a policy.

mod action;
mod parse;
#[cfg(test)]
mod tests;
mod wildcard;

pub use action::Action;
pub use parse::parse;

/// What a statement does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Allow,
    Deny,
}

/// Whom a statement concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Principal {
    Anyone,
    /// The account of that canonical id.
    Account(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Statement {
    effect: Effect,
    principals: Vec<Principal>,
    /// Patterns, lower case, without `s3:`.
    actions: Vec<String>,
    /// Patterns of `bucket` or `bucket/key`.
    resources: Vec<String>,
}

/// A policy that was understood as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    statements: Vec<Statement>,
}

/// What a policy says of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Some statement denies it.
    Denied,
    /// Some statement allows it and none denies it.
    Allowed,
    /// No statement concerns it.
    Silent,
}

impl Policy {
    /// Judges `action` on `resource` (`bucket` or `bucket/key`) by the account of that canonical id, or by anyone.
    pub fn judge(&self, account: Option<&str>, action: Action, resource: &str) -> Verdict {
        let mut verdict = Verdict::Silent;
        for statement in self.statements.iter().filter(|s| s.concerns(account, action, resource)) {
            match statement.effect {
                Effect::Deny => return Verdict::Denied,
                Effect::Allow => verdict = Verdict::Allowed,
            }
        }
        verdict
    }

    /// Some statement allows something to anyone.
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|s| s.effect == Effect::Allow && s.principals.contains(&Principal::Anyone))
    }
}

impl Statement {
    fn concerns(&self, account: Option<&str>, action: Action, resource: &str) -> bool {
        let name = action.lower_name();
        let who = self.principals.iter().any(|p| match p {
            Principal::Anyone => true,
            Principal::Account(id) => account == Some(id.as_str()),
        });
        who && self.actions.iter().any(|pattern| wildcard::matches(pattern, &name))
            && self.resources.iter().any(|pattern| wildcard::matches(pattern, resource))
    }
}
