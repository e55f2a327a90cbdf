//! Which components are accepted, and which are refused.

use onward_journal::ComponentDigest;
use onward_wasm::{Config, GuestFunctionKind, LoadError, WasmRuntime};

use crate::{RUNTIME, guests, load};

fn refused(text: &str) -> String {
    RUNTIME
        .load_component(&guests::parse(text))
        .unwrap_err()
        .to_string()
}

#[test]
fn a_component_describes_its_functions() {
    let bytes = guests::with_call(guests::ECHO);
    let component = load(&bytes);
    assert_eq!(component.digest(), ComponentDigest::from_component(&bytes));
    let functions: Vec<_> = component
        .functions()
        .iter()
        .map(|f| (&*f.name, f.kind, f.schema.clone()))
        .collect();
    assert_eq!(
        functions,
        [
            ("flow", GuestFunctionKind::Workflow, None),
            ("job", GuestFunctionKind::Task, None)
        ]
    );
    assert_eq!(
        RUNTIME
            .find_loaded(component.digest())
            .map(|component| component.digest()),
        Some(component.digest())
    );
    assert_eq!(
        RUNTIME
            .find_loaded(ComponentDigest::from_component(b"another"))
            .map(|component| component.digest()),
        None
    );
}

#[test]
fn the_default_configuration_is_supported() {
    let runtime = WasmRuntime::new(Config::default()).unwrap();
    assert_eq!(runtime.free_workflow_slots(), 4_096);
    runtime
        .load_component(&guests::with_call(guests::ECHO))
        .unwrap();
}

#[test]
fn a_foreign_import_is_named() {
    for import in [
        "wasi:sockets/tcp@0.2.0",
        "onward:guest/host@0.2.0",
        "onward:guest/secrets@0.1.0",
        "env",
    ] {
        let text = format!("(component (import \"{import}\" (instance)))");
        assert!(
            refused(&text).contains(&format!("import `{import}`")),
            "{}",
            refused(&text)
        );
    }
}

#[test]
fn an_import_of_another_type_is_refused() {
    let text = r#"(component
        (import "onward:guest/host@0.1.0" (instance (export "shutdown" (func))))
        (core module $m (func (export "f")))
        (core instance $m (instantiate $m))
        (func (export "describe") (canon lift (core func $m "f")))
        (func (export "call") (canon lift (core func $m "f"))))"#;
    assert!(refused(text).contains("shutdown"), "{}", refused(text));
}

#[test]
fn a_missing_function_is_named() {
    assert_eq!(
        refused("(component)"),
        "the component does not export the function `describe`"
    );
    let text = r#"(component
        (core module $m (func (export "f")))
        (core instance $m (instantiate $m))
        (func (export "describe") (canon lift (core func $m "f"))))"#;
    assert_eq!(
        refused(text),
        "the component does not export the function `call`"
    );
}

#[test]
fn a_function_of_another_type_is_named() {
    let text = r#"(component
        (core module $m (func (export "f")))
        (core instance $m (instantiate $m))
        (func (export "describe") (canon lift (core func $m "f")))
        (func (export "call") (canon lift (core func $m "f"))))"#;
    assert!(
        refused(text).contains("`describe`") || refused(text).contains("`call`"),
        "{}",
        refused(text)
    );
}

#[test]
fn only_components_are_accepted() {
    for bytes in [&b""[..], b"hello", b"\0asm\x01\0\0\0"] {
        assert!(
            matches!(RUNTIME.load_component(bytes), Err(LoadError::Invalid(_))),
            "{bytes:?}"
        );
    }
}

#[test]
fn a_component_has_a_size_limit() {
    let runtime = WasmRuntime::new(Config {
        component_bytes_max: 100,
        workflows_max: 1,
        ..Config::default()
    })
    .unwrap();
    assert_eq!(
        runtime.load_component(&[0; 101]).unwrap_err(),
        LoadError::TooLarge {
            bytes: 101,
            max: 100
        }
    );
}

/// A list of functions with these names at 16, their entries at 32, their names from 200 on.
fn functions(names: &[&str]) -> String {
    let bytes = |words: &[usize]| {
        let bytes = words
            .iter()
            .flat_map(|word| u32::try_from(*word).unwrap().to_le_bytes());
        bytes
            .map(|byte| format!("\\{byte:02x}"))
            .collect::<String>()
    };
    let mut text = format!("(data (i32.const 16) \"{}\")", bytes(&[32, names.len()]));
    for (place, name) in names.iter().enumerate() {
        let (entry, at) = (32 + 24 * place, 200 + 100 * place);
        text += &format!(
            "(data (i32.const {entry}) \"{}\")",
            bytes(&[at, name.len(), 0, 0, 0, 0])
        );
        text += &format!("(data (i32.const {at}) \"{name}\")");
    }
    text
}

#[test]
fn function_names_are_unique() {
    let load = |names: &[&str]| RUNTIME.load_component(&guests::with_functions(&functions(names)));
    assert_eq!(load(&["a", "b"]).unwrap().functions().len(), 2);
    assert_eq!(load(&[]).unwrap().functions().len(), 0);
    assert_eq!(
        load(&["a", "a"]).unwrap_err().to_string(),
        "the component has two functions `a`"
    );
    assert!(matches!(load(&["a", ""]), Err(LoadError::FunctionName(_))));
}

#[test]
fn the_number_of_functions_is_limited() {
    let runtime = WasmRuntime::new(Config {
        functions_max: 1,
        workflows_max: 1,
        ..Config::default()
    })
    .unwrap();
    let error = runtime
        .load_component(&guests::with_functions(&functions(&["a", "b"])))
        .unwrap_err();
    assert_eq!(error, LoadError::TooManyFunctions { count: 2, max: 1 });
}

#[test]
fn a_component_that_needs_too_much_memory_is_refused() {
    let text = r#"(component
        (core module $m (memory 65536) (func (export "f")))
        (core instance $m (instantiate $m))
        (func (export "describe") (canon lift (core func $m "f")))
        (func (export "call") (canon lift (core func $m "f"))))"#;
    assert!(refused(text).contains("memory"), "{}", refused(text));
}

#[test]
fn a_compiled_component_is_cached_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let config = || Config {
        cache_folder: Some(folder.path().to_owned()),
        workflows_max: 1,
        ..Config::default()
    };
    let bytes = guests::with_call(guests::ECHO);
    let first = WasmRuntime::new(config())
        .unwrap()
        .load_component(&bytes)
        .unwrap();
    let second = WasmRuntime::new(config())
        .unwrap()
        .load_component(&bytes)
        .unwrap();
    assert_eq!(first.functions(), second.functions());
    let files: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_file())
        .collect();
    assert_eq!(files.len(), 1);
}
