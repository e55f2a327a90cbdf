//! A worker that greets, and a program that has three people greeted: both in one process, to try it out.

use onward_worker::{Access, Client, Failure, Problem, Task, Worker};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Problem> {
    let access = Access::from_env();
    let worker = Worker::new(&access)?.task("greet", |name: String, task: Task| async move {
        Ok::<_, Failure>(format!("hello {name}, from Rust at attempt {}", task.attempt()))
    });
    let client = Client::new(&access)?;
    let program = async {
        match client.call::<Vec<String>>("greetings", &["Ada", "Grace", "Alan"]).await {
            Ok(greetings) => greetings.iter().for_each(|greeting| println!("{greeting}")),
            Err(error) => eprintln!("{error}"),
        }
    };
    worker.run(program).await
}
