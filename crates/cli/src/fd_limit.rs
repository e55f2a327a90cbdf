//! Raises the limit of open files and connections to what the system allows this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sets the soft limit to the hard limit, and returns the limit that applies; `None` if there is
/// none. Many systems default to about 1,000 open files, and a server needs one for each client
/// that waits.
pub(crate) fn raise_fd_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::debug!(%error, "cannot raise the limit of open files");
            current
        }
    }
}
