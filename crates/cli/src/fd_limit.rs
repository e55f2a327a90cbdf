//! Raises the limit of open files and connections to what the system allows this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sets the soft limit to the hard limit. Many systems default to about 1,000 open files, and a
/// server needs one for each client that waits.
pub(crate) fn raise_fd_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        )
    {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
}
