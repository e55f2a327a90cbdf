//! What does not compile: calling a provider without a reservation, or twice with one.

#[test]
fn a_provider_cannot_be_called_without_a_reservation_of_its_own() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
