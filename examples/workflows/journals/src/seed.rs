//! The three worked examples of the specification. Their operations are in the order of the
//! specification, so that the journals are equal.

use onward::prelude::*;
use serde::{Deserialize, Serialize};

/// Input of `fetch_user`.
#[derive(Serialize, Deserialize)]
pub struct Lookup {
    pub id: u64,
}

/// A user with addresses for email and SMS.
#[derive(Serialize, Deserialize)]
pub struct User {
    pub id: u64,
    pub email: String,
    pub phone: String,
}

/// Input of `send_email` and `send_sms`.
#[derive(Serialize, Deserialize)]
pub struct Message {
    /// Address of the recipient.
    pub to: String,
}

/// Input of `create_order` and of the workflows that wait for an approval.
#[derive(Serialize, Deserialize)]
pub struct Order {
    pub order: u64,
}

/// Payload of the signal `user_approval`.
#[derive(Serialize, Deserialize)]
pub struct Approval {
    pub approved: bool,
}

/// Draws random bytes, calls a task, then two tasks concurrently; `send_email` fails once.
#[workflow]
pub fn full_example(input: Lookup) -> Result<Vec<String>> {
    random_bytes(2);
    let user = invoke(fetch_user, &input)?;
    let mut set = join_set()?;
    let retry = RetryPolicy::max_attempts(3).initial_interval(Duration::from_millis(10));
    set.submit_call(call(send_email, Message { to: user.email }).retry(retry))?;
    set.submit(send_sms, Message { to: user.phone })?;
    let mut sent = Vec::new();
    while let Some(done) = set.next()? {
        sent.push(done.result?);
    }
    Ok(sent)
}

/// Its signal arrives before the workflow waits for it, and is buffered.
#[workflow]
pub fn buffered_signal(order: Order) -> Result<Approval> {
    approved_order(&order)
}

/// Its signal arrives while the workflow waits for it.
#[workflow]
pub fn blocking_signal(order: Order) -> Result<Approval> {
    approved_order(&order)
}

/// Creates an order and waits for its approval.
fn approved_order(order: &Order) -> Result<Approval> {
    invoke(create_order, order)?;
    await_signal("user_approval")
}

/// Returns the user with this id.
#[task]
pub fn fetch_user(lookup: Lookup) -> Result<User> {
    Ok(User {
        id: lookup.id,
        email: "ada@example.org".to_owned(),
        phone: "+44 20 7946 0000".to_owned(),
    })
}

/// Sends an email; the first attempt fails with `timeout`.
#[task]
pub fn send_email(message: Message) -> Result<String> {
    match call_context().attempt {
        1 => Err(Error::new("timeout", "no answer from the mail server")),
        _ => Ok(format!("email to {}", message.to)),
    }
}

/// Sends an SMS.
#[task]
pub fn send_sms(message: Message) -> Result<String> {
    Ok(format!("sms to {}", message.to))
}

/// Creates an order.
#[task]
pub fn create_order(order: Order) -> Result<Order> {
    Ok(order)
}
