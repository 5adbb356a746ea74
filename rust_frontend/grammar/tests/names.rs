//! Names that users type: found, or answered with the nearest.
#![allow(clippy::unwrap_used)]

use octavo_grammar::Registry;

#[test]
fn a_name_that_nobody_has_is_answered_with_the_nearest() {
    let registry = Registry::builtin().unwrap();
    assert_eq!(registry.find_tool("hermes").unwrap().name, "hermes");
    for (typed, nearest) in [
        ("hermess", "hermes"),
        ("Hermes", "hermes"),
        ("qwen3-coder", "qwen3_coder"),
        ("kimi_k2.5", "kimi_k2"),
    ] {
        let error = registry.find_tool(typed).unwrap_err();
        assert_eq!(error.nearest.as_deref(), Some(nearest), "{typed}");
        let said = error.to_string();
        assert!(said.contains(&format!("did you mean {nearest}?")), "{said}");
        assert!(
            said.contains("tool call") && said.contains("mistral"),
            "{said}"
        );
    }
    let far = registry.find_reasoning("zzzzzzzz").unwrap_err();
    assert_eq!(far.nearest, None);
    assert!(far.to_string().contains("deepseek_r1"), "{far}");
}
