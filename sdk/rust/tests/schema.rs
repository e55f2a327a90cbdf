//! JSON schemas of inputs.
#![cfg(feature = "schema")]

use onward::prelude::*;
use onward::{Function, JsonSchema};
use serde::{Deserialize, Serialize};

/// What the customer wants.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "onward::schemars")]
struct Order {
    /// What it is.
    item: String,
    quantity: u32,
}

#[workflow(schema)]
fn order(order: Order) -> Result<u32> {
    Ok(order.quantity)
}

#[task(schema)]
fn add(a: u64, b: Option<u8>) -> Result<u64> {
    Ok(a + u64::from(b.unwrap_or(0)))
}

#[task]
fn silent(n: u64) -> Result<u64> {
    Ok(n)
}

fn schema<F: Function>() -> Option<Json> {
    F::schema().and_then(|text| text.parse().ok())
}

#[test]
fn a_schema_says_what_the_input_is() {
    let schema = schema::<order>().unwrap();
    assert_eq!(schema["title"], "Order");
    assert_eq!(schema["description"], "What the customer wants.");
    assert_eq!(schema["properties"]["item"]["description"], "What it is.");
    assert_eq!(schema["properties"]["quantity"]["type"], "integer");
    assert_eq!(schema["required"], Json::from(vec!["item", "quantity"]));
}

#[test]
fn several_arguments_are_a_list_of_so_many() {
    let schema = schema::<add>().unwrap();
    assert_eq!(
        (&schema["type"], &schema["maxItems"]),
        (&Json::from("array"), &Json::from(2))
    );
}

#[test]
fn nobody_gets_a_schema_who_did_not_ask() {
    assert_eq!(schema::<silent>(), None);
    assert_eq!((add(1, None), silent(1)), (Ok(1), Ok(1)));
    assert_eq!(
        order(Order {
            item: String::new(),
            quantity: 2
        }),
        Ok(2)
    );
}
