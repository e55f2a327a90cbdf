//! The order workflow in virtual time: what it does, what it does when it is refused, and that a
//! crash changes nothing.

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

fn answered(approved: bool) -> TestEnv {
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
    let mut env = answered(true);
    let receipt = env.run(order, tea()).unwrap();
    assert_eq!(receipt.reservation, "2 × tea");
    assert_eq!(receipt.notified, ["email", "sms"]);
    assert_eq!(receipt.approved_by, "grace");
    assert_eq!(receipt.number.len(), 8);
    assert_eq!(env.calls(reserve_stock), 3);
    assert_eq!(env.elapsed(), Duration::from_secs(3_600));
}

#[test]
fn messages_are_noted_in_the_order_in_which_they_went_out() {
    let mut env = answered(true);
    env.takes(send_email, Duration::from_secs(2));
    assert_eq!(env.run(order, tea()).unwrap().notified, ["sms", "email"]);
}

#[test]
fn a_refused_order_fails() {
    let error = answered(false).run(order, tea()).unwrap_err();
    assert_eq!(error, Error::new("not_approved", "grace said no"));
}

#[test]
fn a_warehouse_that_never_answers_fails_the_order() {
    let mut env = answered(true);
    env.stub(reserve_stock, |_| {
        Err(Error::new("warehouse_busy", "no answer"))
    });
    assert!(
        env.run(order, tea())
            .is_err_and(|error| error.is("warehouse_busy"))
    );
    assert_eq!((env.calls(reserve_stock), env.calls(send_email)), (5, 0));
}

#[test]
fn a_crash_anywhere_changes_nothing() {
    let expected = answered(true).run(order, tea());
    let mut env = answered(true);
    assert_eq!(env.crash_everywhere(order, tea()), expected);
    assert_eq!((env.calls(send_email), env.calls(send_sms)), (1, 1));
}

#[test]
fn whoever_starts_an_order_can_read_what_it_is() {
    let schema: Json = order::schema().unwrap().parse().unwrap();
    assert_eq!(schema["description"], "What the customer wants.");
    assert_eq!(schema["properties"]["quantity"]["type"], "integer");
    assert_eq!(
        schema["required"],
        Json::from(vec!["customer", "item", "quantity"])
    );
}
