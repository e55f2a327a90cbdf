//! Open files and connections: as many as the machine lets this process have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Many systems let a process have a thousand unless it asks for more. A server has one for each client that waits.
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
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}
