//! `auto` against real chat templates.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;

use octavo_grammar::{Detected, Registry};

const EXPECTED: &[(&str, &str, &str)] = &[
    ("llamacpp/Qwen-Qwen3-0.6B.jinja", "hermes", "think"),
    ("llamacpp/Qwen-QwQ-32B.jinja", "hermes", "think"),
    (
        "llamacpp/NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja",
        "hermes",
        "",
    ),
    ("llamacpp/Qwen3-Coder.jinja", "qwen3_coder", ""),
    ("llamacpp/Qwen3.5-4B.jinja", "qwen3_coder", "think"),
    ("llamacpp/StepFun3.5-Flash.jinja", "qwen3_coder", "think"),
    ("llamacpp/GLM-4.7-Flash.jinja", "glm45", "think"),
    ("llamacpp/poolside-Laguna-S-2.1.jinja", "glm45", "think"),
    ("llamacpp/tencent-Hy3.jinja", "hy_v3", ""),
    ("llamacpp/moonshotai-Kimi-K2.jinja", "kimi_k2", ""),
    ("llamacpp/Kimi-K2-Thinking.jinja", "kimi_k2", "kimi_k2"),
    ("llamacpp/Kimi-K3.jinja", "kimi_k3", "kimi_k3"),
    (
        "llamacpp/deepseek-ai-DeepSeek-V3.2.jinja",
        "deepseek_v32",
        "deepseek_v3",
    ),
    (
        "llamacpp/deepseek-ai-DeepSeek-V4-Flash-0731.jinja",
        "deepseek_v4",
        "deepseek_v3",
    ),
    (
        "llamacpp/deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja",
        "deepseek_v3",
        "think",
    ),
    (
        "llamacpp/openai-gpt-oss-120b.jinja",
        "openai",
        "openai_gptoss",
    ),
    ("llamacpp/MiniMax-M2.jinja", "minimax_m2", "think"),
    ("llamacpp/ByteDance-Seed-OSS.jinja", "seed_oss", "seed_oss"),
    (
        "llamacpp/muse-glimmer.jinja",
        "muse_glimmer",
        "muse_glimmer",
    ),
    ("llamacpp/LFM2.5-8B-A1B.jinja", "lfm2", "think"),
    (
        "llamacpp/mistralai-Mistral-Nemo-Instruct-2407.jinja",
        "mistral",
        "",
    ),
    (
        "llamacpp/meta-llama-Llama-3.1-8B-Instruct.jinja",
        "llama3_json",
        "",
    ),
    (
        "llamacpp/CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja",
        "cohere_command3",
        "cohere_command3",
    ),
    ("vllm/tool_chat_template_gemma4.jinja", "gemma4", "gemma4"),
    (
        "vllm/tool_chat_template_functiongemma.jinja",
        "functiongemma",
        "",
    ),
    ("vllm/tool_chat_template_granite.jinja", "granite", ""),
    ("vllm/tool_chat_template_apertus.jinja", "apertus", ""),
    (
        "vllm/tool_chat_template_hunyuan_a13b.jinja",
        "hunyuan_a13b",
        "hunyuan_a13b",
    ),
    ("llamacpp/ibm-granite-granite-4.0.jinja", "granite4", ""),
    ("llamacpp/google-gemma-2-2b-it.jinja", "", ""),
    ("llamacpp_inline/Llama-3.jinja", "", ""),
    ("llamacpp_inline/Phi-3-mini.jinja", "", ""),
];

#[test]
fn templates_say_their_formats() {
    let shared = std::env::var_os("OCTAVO_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    if !shared.is_dir() {
        eprintln!("skipped: no recorded material beside this checkout (OCTAVO_SHARED)");
        return;
    }
    let registry = Registry::builtin().unwrap();
    let mut wrong = Vec::new();
    for (file, tool, reasoning) in EXPECTED {
        let template =
            std::fs::read_to_string(shared.join("oracles/templates/jinja").join(file)).unwrap();
        let Detected {
            tool: found,
            reasoning: thoughts,
        } = registry.detect(&template, |_| false);
        let name = |found: &Option<octavo_grammar::Found>| {
            found
                .as_ref()
                .map_or(String::new(), |found| found.name.clone())
        };
        if name(&found) != *tool || name(&thoughts) != *reasoning {
            wrong.push(format!("{file}: {found:?} {thoughts:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tokens_say_it_too() {
    let registry = Registry::builtin().unwrap();
    let found = registry
        .detect("", |token| token == "[TOOL_CALLS]")
        .tool
        .unwrap();
    assert_eq!(
        (found.name.as_str(), found.because),
        ("mistral", vec!["[TOOL_CALLS]".to_owned()])
    );
    assert_eq!(registry.detect("", |_| false), Detected::default());
}
