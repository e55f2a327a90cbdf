//! JSON schemas of inputs.
#![cfg(feature = "schema")]

use onward::prelude::*;
use onward::{Function, JsonSchema};
use serde::{Deserialize, Serialize};

/// An order of a customer.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "onward::schemars")]
struct Order {
    /// The item.
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
fn a_schema_describes_the_input() {
    let schema = schema::<order>().unwrap();
    assert_eq!(schema["title"], "Order");
    assert_eq!(schema["description"], "An order of a customer.");
    assert_eq!(schema["properties"]["item"]["description"], "The item.");
    assert_eq!(schema["properties"]["quantity"]["type"], "integer");
    assert_eq!(schema["required"], Json::from(vec!["item", "quantity"]));
}

#[test]
fn several_arguments_are_a_list_of_fixed_length() {
    let schema = schema::<add>().unwrap();
    assert_eq!(
        (&schema["type"], &schema["maxItems"]),
        (&Json::from("array"), &Json::from(2))
    );
}

#[test]
fn a_function_without_the_argument_has_no_schema() {
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
