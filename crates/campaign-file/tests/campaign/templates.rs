//! Templates: rendering, escaping, and the limits of time, memory and stack.

use onward_campaign_core::ComposeMessage as _;
use onward_campaign_file::TemplateComposer;
use proptest::prelude::*;
use serde_json::json;

use crate::{LETTER, campaign_with, recipient};

fn composer(template: &str) -> TemplateComposer {
    TemplateComposer::new(&campaign_with(template, "")).unwrap()
}

fn render_error(template: &str, data: serde_json::Value) -> String {
    composer(template)
        .render_message(&recipient(data))
        .unwrap_err()
        .to_string()
}

#[test]
fn a_message_has_all_rendered_parts() {
    let campaign = campaign_with(
        LETTER,
        "unsubscribe: 'https://example.com/u/{{ id|urlencode }}'",
    );
    let composer = TemplateComposer::new(&campaign).unwrap();
    let message = composer
        .compose_message(&recipient(json!({ "name": "Ada" })))
        .unwrap();
    assert_eq!(message.find_part("subject"), Some("Hello Ada"));
    assert_eq!(message.find_part("text"), Some("Dear Ada"));
    assert_eq!(
        message.find_part("unsubscribe"),
        Some("https://example.com/u/7")
    );
    assert_eq!(
        composer.render_message(&recipient(json!({ "name": "Ada" }))),
        Ok(message)
    );
}

#[test]
fn built_in_variables_take_precedence_over_fields_of_the_row() {
    let data = json!({ "id": "x", "to": "x", "campaign": "x", "channel": "x", "data": "x", "a b": 1, "list": [1, 2] });
    let text = "{{ id }} {{ to }} {{ email }} {{ campaign }} {{ channel }} {{ data['a b'] }} {{ data.id }} {{ list[1] }}";
    let message = composer(&format!("{{ text: \"{text}\" }}"))
        .render_message(&recipient(data))
        .unwrap();
    assert_eq!(
        message.find_part("text"),
        Some("7 ada@example.com ada@example.com news email 1 x 2")
    );
}

#[test]
fn only_html_is_escaped() {
    let message =
        composer("{ text: '{{ name }}', html: '<b>{{ name }}</b>', subject: '{{ name }}' }");
    let message = message
        .render_message(&recipient(json!({ "name": "<A & B>" })))
        .unwrap();
    assert_eq!(message.find_part("html"), Some("<b>&lt;A &amp; B&gt;</b>"));
    assert_eq!(
        (message.find_part("text"), message.find_part("subject")),
        (Some("<A & B>"), Some("<A & B>"))
    );
}

#[test]
fn an_undefined_variable_is_named() {
    let error = render_error("{ text: \"Dear\\n{{ first_name }}\" }", json!({}));
    assert_eq!(error, "part `text`, line 2: `first_name` is not defined");
    let error = render_error("{ subject: '{{ data.cart.total }}' }", json!({}));
    assert_eq!(
        error,
        "part `subject`, line 1: `data.cart.total` is not defined"
    );
    assert!(
        render_error("{ text: '{% if vip %}x{% endif %}' }", json!({})).contains("is not defined")
    );
    let given = composer("{ text: \"{{ name|default('you') }}\" }")
        .render_message(&recipient(json!({})))
        .unwrap();
    assert_eq!(given.find_part("text"), Some("you"));
}

#[test]
fn an_invalid_template_is_rejected_with_its_line() {
    let error =
        TemplateComposer::new(&campaign_with("{ text: \"a\\n{{ name \" }", "")).unwrap_err();
    assert_eq!((error.part.as_str(), error.line), ("text", Some(2)));
    for text in [
        "{% include 'x' %}",
        "{% if %}",
        "{{ name|nofilter }}",
        "{% for %}",
        "{{",
    ] {
        let template = format!("{{ text: \"{text}\" }}");
        let composer = TemplateComposer::new(&campaign_with(&template, ""));
        assert!(
            composer
                .and_then(|it| it.render_message(&recipient(json!({ "name": 1 }))))
                .is_err(),
            "{text}"
        );
    }
}

#[test]
fn a_value_cannot_start_a_header() {
    for part in ["subject", "from", "reply_to", "x-anything"] {
        for end in ["\n", "\r", "\r\n"] {
            let name = format!("Ada{end}Bcc: eve@example.com");
            let error = render_error(
                &format!("{{ {part}: '{{{{ name }}}}' }}"),
                json!({ "name": name }),
            );
            assert!(error.contains("more than one line"), "{error}");
        }
    }
    let campaign = campaign_with("{ text: a }", "unsubscribe: '{{ name }}'");
    assert!(
        TemplateComposer::new(&campaign)
            .unwrap()
            .render_message(&recipient(json!({ "name": "a\nb" })))
            .is_err()
    );
    assert!(
        render_error("{ subject: '{{ name }}' }", json!({ "name": "a\0b" })).contains("control")
    );
}

#[test]
fn the_last_line_break_of_a_template_is_removed() {
    let message = composer("{ subject: \"Hello\\n\" }")
        .render_message(&recipient(json!({})))
        .unwrap();
    assert_eq!(message.find_part("subject"), Some("Hello"));
}

#[test]
fn the_rendered_from_part_must_be_an_address() {
    let error = render_error("{ from: '{{ name }}' }", json!({ "name": "Ada" }));
    assert!(error.contains("part `from`: invalid address"), "{error}");
    assert!(
        composer("{ from: '{{ name }} <a@example.com>' }")
            .render_message(&recipient(json!({ "name": "Ada" })))
            .is_ok()
    );
}

#[test]
fn rendering_always_terminates() {
    let nested =
        "{% for a in range(90000) %}{% for b in range(90000) %}{{ b }}{% endfor %}{% endfor %}";
    let error = render_error(&format!("{{ text: \"{nested}\" }}"), json!({}));
    assert!(
        error.contains("too many steps") || error.contains("longer than"),
        "{error}"
    );
    let silent = nested.replace("{{ b }}", "{% if b < 0 %}x{% endif %}");
    assert!(
        render_error(&format!("{{ text: \"{silent}\" }}"), json!({})).contains("too many steps")
    );
    let long = format!(
        "{{% for a in range(2000) %}}{}{{% endfor %}}",
        "x".repeat(1_000)
    );
    assert!(
        render_error(&format!("{{ text: \"{long}\" }}"), json!({}))
            .contains("longer than 1048576 bytes")
    );
    assert!(
        TemplateComposer::new(&campaign_with(
            &format!("{{ text: \"{}\" }}", "{{ (".repeat(10_000)),
            ""
        ))
        .is_err()
    );
    assert!(
        TemplateComposer::new(&campaign_with(
            &format!("{{ text: \"{}\" }}", "{% if 1 %}".repeat(10_000)),
            ""
        ))
        .is_err()
    );
}

#[test]
fn a_template_cannot_exhaust_the_memory() {
    let render_error = |text: &str| {
        let mut campaign = campaign_with(LETTER, "");
        campaign.template.insert("text".into(), text.to_owned());
        match TemplateComposer::new(&campaign) {
            Ok(composer) => composer
                .render_message(&recipient(json!({ "name": "x".repeat(1_000), "n": 5_000 })))
                .err()
                .map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        }
    };
    let doubled =
        |first: &str, again: &str| format!("{first}{}{{{{ a|length }}}}", again.repeat(30));
    for text in [
        doubled("{% set a = 'x' * 1000 %}", "{% set a = a ~ a %}"),
        doubled("{% set a = name %}", "{% set a = a ~ a %}"),
        doubled("{% set a = name %}", "{% set a = a + a %}"),
        doubled("{% set a = name %}", "{% set a = [a, a] %}"),
        doubled("{% set a = name %}", "{% set a = a|tojson %}"),
        doubled("{% set a = name %}", "{% set a = '%s%s'|format(a, a) ~ a %}"),
        format!("{{{{ name{} }}}}", "|urlencode".repeat(40)),
        "{% set a = name %}{% for i in range(40) %}{% set a = a ~ a %}{% endfor %}".to_owned(),
        "{% with a = name ~ name ~ name %}{% with a = a * 100000 %}{{ a|length }}{% endwith %}{% endwith %}".to_owned(),
        "{{ ('x' * 100000000)|length }}".to_owned(),
        "{{ (name * n)|length }}".to_owned(),
        "{{ ('x' * 100000)|replace('x', 'y' * 6000) }}".to_owned(),
        "{{ range(100000)|join('x' * 100000) }}".to_owned(),
        "{{ range(100000)|map('replace', '1', 'x' * 100000)|list|length }}".to_owned(),
        "{{ '%900000000d'|format(1) }}".to_owned(),
        "{{ [1]|slice(1000000000) }}".to_owned(),
        "{{ name|indent(1000000000) }}".to_owned(),
        "{% set a %}{% for i in range(100000) %}{{ name }}{% endfor %}{% endset %}{{ a|length }}".to_owned(),
        "{% filter upper %}{% for i in range(100000) %}{{ name }}{% endfor %}{% endfilter %}".to_owned(),
    ] {
        let error = render_error(&text).unwrap_or_default();
        let expected = [
            "could use more than",
            "grows with each iteration",
            "longer",
            "may repeat",
            "unknown filter",
            "`map` accepts",
            "a format string is limited",
            "`set` blocks",
            "`filter` blocks",
        ];
        assert!(
            expected.iter().any(|it| error.contains(it)),
            "{text}: {error}"
        );
    }
    for text in [
        "{% set full = name ~ ' ' ~ name %}{% set greeting = 'Dear ' ~ full %}{{ greeting }}",
        "{% set total = 0 %}{% for i in range(3000) %}{% set total = total + i %}{% endfor %}{{ total }}",
        "{{ n|float * 1.19 }} {{ '%.2f'|format(n * 2) }} {{ n * 3 }} {{ (n|int * n|int)|round(2) }}",
        "{% for part in name|list %}{% if loop.index < 5 %}{{ part|upper ~ loop.index }}{% endif %}{% endfor %}",
        "{{ [name, name]|join(', ')|replace('x', 'y')|title }} {{ data|tojson|length }} {{ name|urlencode }}",
        "{{ [3, 1]|sort|map('string')|join('-') }} {{ name|default('you')|trim|e }}",
    ] {
        assert_eq!(render_error(text), None, "{text}");
    }
}

#[test]
fn a_template_cannot_overflow_the_stack() {
    let repeated = [
        ("{{ 1", "+1", " }}"),
        ("{{ 1", "~1", " }}"),
        ("{{ 1", " and 1", " }}"),
        ("{{ 1", "**1", " }}"),
        ("{{ 1", " == 1", " }}"),
        ("{{ 1", " if 1 else 1", " }}"),
        ("{{ ", "not ", "1 }}"),
        ("{{ ", "-", "1 }}"),
        ("{{ ", "[", ""),
        ("{{ 1", "|int", " }}"),
        ("{{ 1", " is odd", " }}"),
        ("{{ name", ".a", " }}"),
        ("{{ name", "[0]", " }}"),
        ("{{ name", "()", " }}"),
        ("{% if 1 %}", "{% elif 1 %}", "{% endif %}"),
        ("{% set x = [] %}", "{% set x = [x] %}", ""),
        ("{% raw %}{{ \"{% endraw %}{{ \"}}\" ", "~1", " }}"),
    ];
    for (start, piece, end) in repeated {
        for times in [30, 60, 98, 120, 145, 290, 50_000] {
            let mut campaign = campaign_with(LETTER, "");
            campaign.template.insert(
                "text".into(),
                format!("{start}{}{end}", piece.repeat(times)),
            );
            let composer = TemplateComposer::new(&campaign);
            assert!(times < 50_000 || composer.is_err(), "{piece}");
            drop(composer.map(|it| it.render_message(&recipient(json!({ "name": "Ada" })))));
        }
    }
    let growing =
        "{% set n = namespace(x=1) %}{% for i in range(60000) %}{% set n.x = [n.x] %}{% endfor %}";
    assert!(render_error(&format!("{{ text: \"{growing}\" }}"), json!({})).contains("namespace"));
}

proptest! {
    #[test]
    fn no_value_can_add_a_line_to_a_header_or_a_tag_to_html(name in "(\\PC|[\r\n\t\u{0}\u{b}]|<script>){0,20}") {
        let composer = composer("{ subject: 'Hello {{ name }}', html: '{{ name }}' }");
        if let Ok(message) = composer.render_message(&recipient(json!({ "name": name }))) {
            prop_assert!(!message.find_part("subject").unwrap().contains(['\r', '\n', '\0']));
            prop_assert!(!message.find_part("html").unwrap().contains('<'));
        }
    }

    #[test]
    fn no_template_causes_a_panic(text in "(\\PC|\\{\\{|\\}\\}|\\{%|%\\}| if | for | in | set |name|\\||\\(|\\)){0,30}") {
        let mut campaign = campaign_with(LETTER, "");
        campaign.template.insert("text".into(), text);
        if let Ok(composer) = TemplateComposer::new(&campaign) {
            drop(composer.render_message(&recipient(json!({ "name": "Ada" }))));
        }
    }
}
