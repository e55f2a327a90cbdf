//! The three worked examples of the specification: the operations come in its order, so the
//! journals are its journals.

use onward::prelude::*;
use serde::{Deserialize, Serialize};

/// Whom to fetch.
#[derive(Serialize, Deserialize)]
pub struct Lookup {
    pub id: u64,
}

/// Whom to tell.
#[derive(Serialize, Deserialize)]
pub struct User {
    pub id: u64,
    pub email: String,
    pub phone: String,
}

/// What to tell.
#[derive(Serialize, Deserialize)]
pub struct Message {
    pub to: String,
}

/// What an order is.
#[derive(Serialize, Deserialize)]
pub struct Order {
    pub order: u64,
}

/// What the signal `user_approval` carries.
#[derive(Serialize, Deserialize)]
pub struct Approval {
    pub approved: bool,
}

/// Randomness, a task, then two tasks at once, of which `send_email` fails once.
#[workflow]
pub fn full_example(input: Lookup) -> Result<Vec<String>> {
    random_bytes(2);
    let user = invoke(fetch_user, &input)?;
    let mut set = join_set()?;
    let retry = Retry::attempts(3).first_wait(Duration::from_millis(10));
    set.submit_call(call(send_email, Message { to: user.email }).retry(retry))?;
    set.submit(send_sms, Message { to: user.phone })?;
    let mut sent = Vec::new();
    while let Some(done) = set.next()? {
        sent.push(done.result?);
    }
    Ok(sent)
}

/// The signal is there before the workflow asks for it.
#[workflow]
pub fn buffered_signal(order: Order) -> Result<Approval> {
    approved_order(&order)
}

/// The signal comes while the workflow waits for it.
#[workflow]
pub fn blocking_signal(order: Order) -> Result<Approval> {
    approved_order(&order)
}

/// The two differ only in when the signal comes.
fn approved_order(order: &Order) -> Result<Approval> {
    invoke(create_order, order)?;
    await_signal("user_approval")
}

#[task]
pub fn fetch_user(lookup: Lookup) -> Result<User> {
    Ok(User {
        id: lookup.id,
        email: "ada@example.org".to_owned(),
        phone: "+44 20 7946 0000".to_owned(),
    })
}

#[task]
pub fn send_email(message: Message) -> Result<String> {
    match own().attempt {
        1 => Err(Error::new("timeout", "no answer from the mail server")),
        _ => Ok(format!("email to {}", message.to)),
    }
}

#[task]
pub fn send_sms(message: Message) -> Result<String> {
    Ok(format!("sms to {}", message.to))
}

#[task]
pub fn create_order(order: Order) -> Result<Order> {
    Ok(order)
}
