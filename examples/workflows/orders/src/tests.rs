//! The order workflow in virtual time: approval, rejection, failures, and crashes at every wait.

use onward::Function;
use onward::prelude::*;
use onward::testing::TestEnv;

use crate::{Approval, Order, order, reserve_stock, send_email, send_sms};

fn tea() -> Order {
    Order {
        customer: "ada".to_owned(),
        item: "tea".to_owned(),
        quantity: 2,
    }
}

fn env_with_approval(approved: bool) -> TestEnv {
    let mut env = TestEnv::new();
    env.signal_at(
        Duration::from_secs(3_600),
        "approval",
        &Approval {
            approved,
            by: "grace".to_owned(),
        },
    );
    env
}

#[test]
fn an_approved_order_ends_with_a_receipt() {
    let mut env = env_with_approval(true);
    let receipt = env.run(order, tea()).unwrap();
    assert_eq!(receipt.reservation, "2 × tea");
    assert_eq!(receipt.notified, ["email", "sms"]);
    assert_eq!(receipt.approved_by, "grace");
    assert_eq!(receipt.number.len(), 8);
    assert_eq!(env.call_count(reserve_stock), 3);
    assert_eq!(env.elapsed(), Duration::from_secs(3_600));
}

#[test]
fn notifications_are_listed_in_order_of_completion() {
    let mut env = env_with_approval(true);
    env.set_duration(send_email, Duration::from_secs(2));
    assert_eq!(env.run(order, tea()).unwrap().notified, ["sms", "email"]);
}

#[test]
fn a_rejected_order_fails() {
    let error = env_with_approval(false).run(order, tea()).unwrap_err();
    assert_eq!(
        error,
        Error::new("not_approved", "grace rejected the order")
    );
}

#[test]
fn an_order_fails_when_the_warehouse_never_responds() {
    let mut env = env_with_approval(true);
    env.stub(reserve_stock, |_| {
        Err(Error::new("warehouse_busy", "no response"))
    });
    assert!(
        env.run(order, tea())
            .is_err_and(|error| error.has_kind("warehouse_busy"))
    );
    assert_eq!(
        (env.call_count(reserve_stock), env.call_count(send_email)),
        (5, 0)
    );
}

#[test]
fn a_crash_at_any_wait_does_not_change_the_result() {
    let expected = env_with_approval(true).run(order, tea());
    let mut env = env_with_approval(true);
    assert_eq!(env.crash_everywhere(order, tea()), expected);
    assert_eq!(
        (env.call_count(send_email), env.call_count(send_sms)),
        (1, 1)
    );
}

#[test]
fn the_schema_describes_the_input() {
    let schema: Json = order::schema().unwrap().parse().unwrap();
    assert_eq!(schema["description"], "An order of a customer.");
    assert_eq!(schema["properties"]["quantity"]["type"], "integer");
    assert_eq!(
        schema["required"],
        Json::from(vec!["customer", "item", "quantity"])
    );
}
