//! The order workflow of the demonstration: randomness, a task that is retried, two messages at
//! once, a timer, a signal.

use onward::prelude::*;
use onward::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};

/// What the customer wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Order {
    pub customer: String,
    pub item: String,
    pub quantity: u32,
}

/// What a person answers with the signal `approval`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    pub approved: bool,
    pub by: String,
}

/// What the customer gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    pub number: String,
    pub reservation: String,
    pub notified: Vec<String>,
    pub approved_by: String,
}

/// Takes an order from its number to its receipt.
#[workflow(schema)]
pub fn order(order: Order) -> Result<Receipt> {
    let number = format!("{:08x}", random_u64() as u32);
    info!("order {number} of {} for {}", order.item, order.customer);

    let retry = Retry::attempts(5).first_wait(Duration::from_millis(200));
    let reservation = call(reserve_stock, &order).retry(retry).run()?;

    let mut messages = join_set()?;
    messages.submit(send_email, &order)?;
    messages.submit(send_sms, &order)?;
    let notified = messages.join_all()?;

    sleep(Duration::from_secs(1))?;
    let approval: Approval = await_signal("approval")?;
    if !approval.approved {
        return Err(Error::new(
            "not_approved",
            format!("{} said no", approval.by),
        ));
    }
    Ok(Receipt {
        number,
        reservation,
        notified,
        approved_by: approval.by,
    })
}

/// The warehouse answers only at the third attempt.
#[task]
pub fn reserve_stock(order: Order) -> Result<String> {
    match own().attempt {
        attempt @ 1..3 => Err(Error::new(
            "warehouse_busy",
            format!("no answer to attempt {attempt}"),
        )),
        _ => Ok(format!("{} × {}", order.quantity, order.item)),
    }
}

/// Tells the customer by email.
#[task]
pub fn send_email(order: Order) -> Result<String> {
    info!(
        "email to {}: your {} is under way",
        order.customer, order.item
    );
    Ok("email".to_owned())
}

/// Tells the customer by SMS.
#[task]
pub fn send_sms(order: Order) -> Result<String> {
    info!(
        "SMS to {}: your {} is under way",
        order.customer, order.item
    );
    Ok("sms".to_owned())
}

onward::component!(order, reserve_stock, send_email, send_sms);

#[cfg(test)]
mod tests;
