//! A worker that greets, and a program that has three people greeted: both in one process, to try
//! it out.

use onward_worker::{ApiClient, ClientConfig, Problem, TaskFailure, Worker, WorkerTaskContext};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Problem> {
    let access = ClientConfig::from_env();
    let worker = Worker::new(&access)?.register_task(
        "greet",
        |name: String, task: WorkerTaskContext| async move {
            Ok::<_, TaskFailure>(format!(
                "hello {name}, from Rust at attempt {}",
                task.attempt()
            ))
        },
    );
    let client = ApiClient::new(&access)?;
    let program = async {
        match client
            .call_workflow::<Vec<String>>("greetings", &["Ada", "Grace", "Alan"])
            .await
        {
            Ok(greetings) => greetings.iter().for_each(|greeting| println!("{greeting}")),
            Err(error) => eprintln!("{error}"),
        }
    };
    worker.run(program).await
}
