//! `node quotas`: each user's use of the limits of a daemon.

use utipc_manage::{Entry, Errno, Quota, Refusal, Request};

use super::call::{Call, Ended, Failure};
use super::output::Output;

pub(super) fn show(call: &mut Call) -> Ended {
    let quotas = match call.ask(&Request::Quotas) {
        Err(Failure::Refused(Refusal { errno: Errno::NOT_SUPPORTED, .. })) => {
            return Err(Failure::Unable(
                "this node has no user quotas (only daemons have them; use a daemon of this release)"
                    .to_owned(),
            ));
        }
        reply => reply?,
    };
    call.begin();
    call.out.text(&format!(
        "{:<10} {:<14} {:>14} {:>14} {:>10}\n",
        "User", "Resource", "Used", "Limit", "Refused"
    ));
    for entry in quotas {
        if let Entry::Quota(quota) = entry {
            call.out.object("", |out| print(out, &quota));
        }
    }
    call.out.end();
    Ok(())
}

fn print(out: &mut Output, quota: &Quota) {
    match quota.user {
        Some(user) => out.any("user", user, ""),
        None => out.any("user", "all", ""),
    }
    let user = quota.user.map_or_else(|| "all".to_owned(), |user| user.to_string());
    out.array("quotas", |out| {
        for resource in &quota.resources {
            out.object("", |out| {
                out.any("resource", &*resource.name, &format!("{user:<10} {:<14} ", resource.name));
                out.any("used", resource.used, &format!("{:>14} ", resource.used));
                let is_limited = resource.limit < u64::MAX;
                let limit = if is_limited { resource.limit.to_string() } else { "-".to_owned() };
                if is_limited {
                    out.any("limit", resource.limit, "");
                }
                out.text(&format!("{limit:>14} "));
                out.any("refused", resource.refused, &format!("{:>10}\n", resource.refused));
            });
        }
    });
}
