//! The order workflow of `onward demo`: a random number, a task with retries, two concurrent tasks,
//! a timer and a signal.

use onward::prelude::*;
use onward::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};

/// An order of a customer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Order {
    /// Name of the customer.
    pub customer: String,
    /// Name of the item.
    pub item: String,
    /// Number of items.
    pub quantity: u32,
}

/// Payload of the signal `approval`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// Whether the order may proceed.
    pub approved: bool,
    /// Name of the person who decided.
    pub by: String,
}

/// Result of a completed order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Number of the order.
    pub number: String,
    /// Description of the reserved stock.
    pub reservation: String,
    /// Channels over which the customer was notified, in order of completion.
    pub notified: Vec<String>,
    /// Name of the person who approved the order.
    pub approved_by: String,
}

/// Reserves stock, notifies the customer, and waits for an approval.
#[workflow(schema)]
pub fn order(order: Order) -> Result<Receipt> {
    let number = format!("{:08x}", random_u64() as u32);
    info!("order {number} of {} for {}", order.item, order.customer);

    let retry = RetryPolicy::max_attempts(5).initial_interval(Duration::from_millis(200));
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
            format!("{} rejected the order", approval.by),
        ));
    }
    Ok(Receipt {
        number,
        reservation,
        notified,
        approved_by: approval.by,
    })
}

/// Reserves stock; the first two attempts fail, to show retries.
#[task]
pub fn reserve_stock(order: Order) -> Result<String> {
    match call_context().attempt {
        attempt @ 1..3 => Err(Error::new(
            "warehouse_busy",
            format!("no response to attempt {attempt}"),
        )),
        _ => Ok(format!("{} × {}", order.quantity, order.item)),
    }
}

/// Notifies the customer by email.
#[task]
pub fn send_email(order: Order) -> Result<String> {
    info!(
        "email to {}: your {} is on its way",
        order.customer, order.item
    );
    Ok("email".to_owned())
}

/// Notifies the customer by SMS.
#[task]
pub fn send_sms(order: Order) -> Result<String> {
    info!(
        "SMS to {}: your {} is on its way",
        order.customer, order.item
    );
    Ok("sms".to_owned())
}

onward::component!(order, reserve_stock, send_email, send_sms);

#[cfg(test)]
mod tests;
