//! Expressions, choices, grammars, tags and vocabularies.

#![allow(clippy::unwrap_used)]

use octavo_grammar::constraint::{
    Checker, Constraint, ConstraintError, Grammar, SchemaOptions, Specials, Thoughts, Vocabulary,
    Word, check_schema,
};
use serde_json::{Value, json};

fn takes(constraint: Result<Constraint, ConstraintError>) -> Checker {
    Checker::of(&constraint.unwrap()).unwrap()
}

fn refused(constraint: Result<Constraint, ConstraintError>) -> String {
    match constraint {
        Err(error) => error.to_string(),
        Ok(constraint) => Checker::of(&constraint).unwrap_err().to_string(),
    }
}

#[test]
fn so02_bad_expressions_are_refused() {
    for pattern in ["[a-z", "(?<=x)y", "\\d{5", "\\p{Nope}", "", "(a)\\1", "^$"] {
        assert!(!refused(Constraint::regex(pattern)).is_empty(), "{pattern}");
    }
    assert!(refused(Constraint::regex("(?<=x)y")).contains("look"));
    assert!(refused(Constraint::regex("(a)\\1")).contains("backreference"));
}

/// What is held against each other is bounded, and what is shown of a long text too.
#[test]
fn work_and_messages_are_bounded() {
    let options: Vec<Value> = (0..400)
        .map(|at| json!({"type": "object", "properties": {format!("k{at}"): {"const": at}}, "required": [format!("k{at}")]}))
        .collect();
    let refusal = |schema: &Value| check_schema(schema).unwrap_err();
    let error = refusal(&json!({"oneOf": options})).to_string();
    assert!(error.contains("too large"), "{error}");
    let options: Vec<Value> = (0..513).map(|at| json!({"const": at})).collect();
    let error = refusal(&json!({"oneOf": options})).to_string();
    assert!(error.contains("at most 512"), "{error}");
    let deep = format!("{}y{}", "(?:x|".repeat(3000), ")".repeat(3000));
    assert!(refused(Constraint::regex(&deep)).chars().count() < 1500);
}

#[test]
fn so14_escapes_in_expressions_and_choices() {
    let fruit = takes(Constraint::regex(
        "^(A fruit\\nA nice fruit|A vegetable\\nA nice vegetable)$",
    ));
    assert!(fruit.accepts("A fruit\nA nice fruit") && !fruit.accepts("A fruit\\nA nice fruit"));
    let texts = [
        "say \"hi\"",
        "back\\slash",
        "two\nlines",
        "naïve 日本",
        "a",
        "ab",
    ];
    let choice = takes(Constraint::choice(&texts.map(str::to_owned)));
    assert!(texts.iter().all(|text| choice.accepts(text)));
    assert!(
        !["", "abc", "say hi", "two\\nlines"]
            .iter()
            .any(|text| choice.accepts(text))
    );
    let price = takes(Constraint::regex("cost\\$"));
    assert!(price.accepts("cost$") && !price.accepts("cost"));
}

#[test]
fn so08_huge_counts_are_refused_or_compiled_within_bounds() {
    let began = std::time::Instant::now();
    assert!(
        refused(Constraint::grammar("root ::= \"a\"{2000000000,2147483647}")).contains("line 1")
    );
    for schema in [
        json!({"type": "array", "minItems": 100_000_000}),
        json!({"type": "string", "maxLength": 2_147_483_647_u64}),
    ] {
        let _ = check_schema(&schema);
    }
    let _ = Constraint::regex("(a{1000}){1000}").map(|constraint| Checker::of(&constraint).is_ok());
    assert!(
        began.elapsed().as_secs() < 20,
        "in a debug build, on a busy machine: {:?}",
        began.elapsed()
    );
}

#[test]
fn so10_texts_for_people_do_not_change_the_grammar() {
    let lowered = |text: &str| {
        let schema = json!({"type": "object", "title": text, "properties": {"a": {"type": "string", "description": text,
            "default": text, "examples": [text]}}});
        Constraint::json_schema(&schema, &SchemaOptions::default()).unwrap()
    };
    for text in [
        "",
        "use null if none",
        "\"]}\\\n",
        "🙂",
        "{\"type\": \"null\"}",
    ] {
        assert_eq!(lowered(text), lowered("plain"));
    }
}

#[test]
fn ebnf_is_read_as_it_is_written() {
    let grammar = takes(Constraint::grammar(
        "# sums\nroot ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" root \")\" | \"\\\"\" [^\\\"\\n]* \"\\\"\"\n",
    ));
    assert!(grammar.accepts("1+(20+3)+\"a-b]\""));
    assert!(!grammar.accepts("1+") && !grammar.accepts("\"a"));
    let optional = takes(Constraint::grammar("root ::= (\"a\" | ) \"b\"{2,3}"));
    assert!(optional.accepts("bb") && optional.accepts("abbb") && !optional.accepts("ab"));
    assert!(refused(Constraint::grammar("root ::= nope")).contains("there is no rule nope"));
    assert!(refused(Constraint::grammar("a ::= \"x\"")).contains("root"));
    assert!(refused(Constraint::grammar("root ::= \"x")).contains("does not end"));
    let lark = takes(Constraint::grammar("start: \"a\" WORD\nWORD: /[a-z]+/\n"));
    assert!(lark.accepts("abc") && !lark.accepts("a"));
    assert!(!refused(Constraint::grammar("start: nope")).is_empty());
    assert!(!refused(Constraint::grammar("  ")).is_empty());
}

#[test]
fn tags_constrain_what_stands_between_them() {
    let options = SchemaOptions::default();
    let tag = |value| Constraint::structural_tag(&value, &Specials::default(), &options);
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let older = takes(tag(
        json!({"structures": [{"begin": "<f=x>", "schema": schema, "end": "</f>"}], "triggers": ["<f="]}),
    ));
    assert!(older.accepts("no call < here") && older.accepts("Look: <f=x>{\"a\": 1}</f> done"));
    assert!(!older.accepts("<f=y>{}</f>") && !older.accepts("<f=x>{}</f>"));
    let format = |format| tag(json!({"type": "structural_tag", "format": format}));
    let sequence = takes(format(json!({"type": "sequence", "elements": [
        {"type": "const_string", "value": "A"},
        {"type": "tag", "begin": "<t>", "content": {"type": "any_text"}, "end": "</t>"},
        {"type": "or", "elements": [{"type": "regex", "pattern": "[0-9]+"}, {"type": "json_schema", "json_schema": true}]}]})));
    assert!(
        sequence.accepts("A<t>x<y</t>12")
            && sequence.accepts("A<t></t>null")
            && !sequence.accepts("A<t>x12")
    );
    let separated = takes(format(
        json!({"type": "tags_with_separator", "separator": ",", "at_least_one": true, "tags": [
        {"begin": "<", "content": {"type": "grammar", "grammar": "root ::= [a-z]"}, "end": ">"}]}),
    ));
    assert!(separated.accepts("<a>,<b>") && !separated.accepts("") && !separated.accepts("<a><b>"));
    for (wrong, part) in [
        (json!({"type": "qwen_xml_parameter"}), "format.type"),
        (
            json!({"type": "sequence", "elements": []}),
            "format.elements",
        ),
        (
            json!({"type": "tag", "begin": "<", "end": ">"}),
            "format.content",
        ),
        (
            json!({"type": "json_schema", "json_schema": {"type": "x"}}),
            "format.json_schema.type",
        ),
    ] {
        assert_eq!(format(wrong).unwrap_err().part, part);
    }
}

/// A vocabulary with pieces that cross the borders of JSON tokens, two special tokens and an end.
fn words() -> (Vec<Word>, Vec<String>) {
    let texts = [
        "}", "}\n", "{", "\"", "\"}", "\",", "]}", "a", "{\"a", "\":", "\": 1", "1", " ", "\n",
        "\\", "n",
    ];
    let mut words: Vec<Word> = texts
        .iter()
        .map(|text| Word::Bytes(text.as_bytes().to_vec()))
        .collect();
    words.push(Word::Special("<call_end>".to_owned()));
    words.push(Word::Special("<end>".to_owned()));
    (words, texts.map(str::to_owned).to_vec())
}

#[test]
fn so13_masks_and_tokens_agree_in_every_state() {
    let (words, texts) = words();
    let end = u32::try_from(words.len() - 1).unwrap();
    let vocabulary = Vocabulary::new(&words, words.len(), &[end]).unwrap();
    let schema = json!({"type": "object", "properties": {"a": {"type": ["integer", "string"]}}, "required": ["a"]});
    let constraint = Constraint::json_schema(&schema, &SchemaOptions::default()).unwrap();
    let grammar = Grammar::compile(&constraint, &vocabulary).unwrap();
    // Every state within four tokens.
    let mut paths: Vec<Vec<u32>> = vec![Vec::new()];
    for depth in 0..4 {
        let mut longer = Vec::new();
        for path in paths.iter().filter(|path| path.len() == depth) {
            let at = || {
                let mut matcher = grammar.matcher();
                let complete = path
                    .iter()
                    .fold(false, |_, token| matcher.accept(*token).unwrap());
                (matcher, complete)
            };
            let (mut matcher, complete) = at();
            if complete {
                continue; // It has ended: nobody asks what comes next.
            }
            let mut mask = [0u32];
            matcher.mask(&mut mask).unwrap();
            for token in 0..=end {
                let allowed = mask[0] >> token & 1 == 1;
                assert_eq!(
                    allowed,
                    at().0.accept(token).is_ok(),
                    "{path:?} then {token}"
                );
                if allowed && token != end {
                    longer.push(path.iter().copied().chain([token]).collect());
                }
            }
        }
        paths.extend(longer);
    }
    let closed = texts.iter().position(|text| text == "}\n").unwrap();
    assert!(
        paths
            .iter()
            .all(|path| !path.contains(&u32::try_from(closed).unwrap())),
        "nothing follows the object"
    );
}

#[test]
fn so11_a_special_token_is_never_its_text() {
    let (words, texts) = words();
    let special = u32::try_from(texts.len()).unwrap();
    let end = special + 1;
    let vocabulary = Vocabulary::new(&words, words.len(), &[end]).unwrap();
    let specials = Specials::new(vec![("<call_end>".to_owned(), special)]);
    let tag = json!({"format": {"type": "tag", "begin": "{", "content": {"type": "json_schema",
        "json_schema": {"type": "string"}}, "end": "<call_end>"}});
    let constraint =
        Constraint::structural_tag(&tag, &specials, &SchemaOptions::default()).unwrap();
    let grammar = Grammar::compile(&constraint, &vocabulary).unwrap();
    let id =
        |text: &str| u32::try_from(texts.iter().position(|known| known == text).unwrap()).unwrap();
    let mut inside = grammar.matcher();
    for text in ["{", "\"", "a"] {
        inside.accept(id(text)).unwrap();
    }
    let mut mask = [0u32];
    inside.mask(&mut mask).unwrap();
    assert_eq!(mask[0] >> special & 1, 0, "inside of the string");
    assert_eq!(mask[0] >> end & 1, 0);
    assert_eq!(
        mask[0] >> id("\",") & 1,
        0,
        "a token that goes beyond the string"
    );
    inside.accept(id("\"")).unwrap();
    inside.mask(&mut mask).unwrap();
    assert_eq!(mask[0], 1 << special, "behind it nothing else");
    assert!(inside.accept(special).unwrap(), "complete");
}

#[test]
fn end_tokens_come_only_where_an_output_may_end_and_ids_beyond_the_words_never() {
    let (words, _) = words();
    let vocabulary = Vocabulary::new(&words, 40, &[17, 16, 99]).unwrap();
    let constraint = Constraint::regex("a+").unwrap();
    let grammar = Grammar::compile(&constraint, &vocabulary).unwrap();
    let mut matcher = grammar.matcher();
    let mut mask = [0u32; 2];
    matcher.mask(&mut mask).unwrap();
    assert_eq!(mask, [1 << 7, 0]);
    matcher.accept(7).unwrap();
    matcher.mask(&mut mask).unwrap();
    assert_eq!(mask, [1 << 7 | 1 << 16 | 1 << 17, 0]);
    assert!(matcher.accept(16).unwrap());
    assert!(Vocabulary::new(&words, 40, &[99]).is_err());
}

#[test]
fn thoughts_end_with_their_token() {
    let (words, _) = words();
    let vocabulary = Vocabulary::new(&words, words.len(), &[17]).unwrap();
    let specials = Specials::new(vec![("<call_end>".to_owned(), 16)]);
    let thoughts = Thoughts {
        open: String::new(),
        close: "<call_end>".to_owned(),
        without: Vec::new(),
    };
    let constraint = Constraint::regex("1").unwrap().behind(&thoughts, &specials);
    let grammar = Grammar::compile(&constraint, &vocabulary).unwrap();
    let mut matcher = grammar.matcher();
    let mut mask = [0u32];
    for token in [2, 3, 0, 7] {
        matcher.mask(&mut mask).unwrap();
        assert_eq!(mask[0] >> 17 & 1, 0, "no end inside of thoughts");
        assert_eq!(mask[0] >> 16 & 1, 1);
        matcher.accept(token).unwrap();
    }
    matcher.accept(16).unwrap();
    matcher.mask(&mut mask).unwrap();
    assert_eq!(mask[0], 1 << 11 | 1 << 12 | 1 << 13, "1 or white space");
    assert!(matcher.accept(11).unwrap());
}
