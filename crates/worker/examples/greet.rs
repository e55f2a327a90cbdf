//! A worker that greets, and a program that has three people greeted: both in one process, to try it out.

use onward_api::Onward as _;
use onward_api::execution::Start;
use onward_worker::{Access, Client, Failure, Problem, Task, Worker};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Problem> {
    let url = std::env::var("ONWARD_SERVER").unwrap_or_else(|_| "http://127.0.0.1:7400".to_owned());
    let access = Access { url, token: std::env::var("ONWARD_TOKEN").ok(), scope: None };
    let worker = Worker::new(&access)?.task("greet", |name: String, task: Task| async move {
        Ok::<_, Failure>(format!("hello {name}, from Rust at attempt {}", task.attempt()))
    });
    let input = onward_api::json(r#"["Ada", "Grace", "Alan"]"#)?;
    let start = Start { function: "greetings".to_owned(), input, key: None, wait_ms: Some(60_000) };
    let client = Client::new(&access)?;
    worker
        .run(async {
            match client.start(start).await {
                Ok(done) => println!("{}", done.result.map(|json| json.as_str().to_owned()).unwrap_or_default()),
                Err(problem) => eprintln!("{problem}"),
            }
        })
        .await
}
