//! Calling a provider without a reservation, or twice with one, does not compile.

#[test]
fn a_provider_call_requires_a_reservation_and_consumes_it() {
    trybuild::TestCases::new().compile_fail("tests/rejected/*.rs");
}
