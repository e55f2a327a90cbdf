//! Templates: what they can say, and what cannot be said with them.

use onward_campaign_core::ComposeMessage as _;
use onward_campaign_file::TemplateComposer;
use proptest::prelude::*;
use serde_json::json;

use crate::{LETTER, campaign_with, recipient};

fn composer(template: &str) -> TemplateComposer {
    TemplateComposer::new(&campaign_with(template, "")).unwrap()
}

fn fails(template: &str, data: serde_json::Value) -> String {
    composer(template)
        .preview_message(&recipient(data))
        .unwrap_err()
}

#[test]
fn a_message_has_all_parts_filled_in() {
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
        composer.preview_message(&recipient(json!({ "name": "Ada" }))),
        Ok(message)
    );
}

#[test]
fn templates_know_the_recipient_and_no_row_can_pretend_otherwise() {
    let data = json!({ "id": "x", "to": "x", "campaign": "x", "channel": "x", "data": "x", "a b": 1, "list": [1, 2] });
    let text = "{{ id }} {{ to }} {{ email }} {{ campaign }} {{ channel }} {{ data['a b'] }} {{ data.id }} {{ list[1] }}";
    let message = composer(&format!("{{ text: \"{text}\" }}"))
        .preview_message(&recipient(data))
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
        .preview_message(&recipient(json!({ "name": "<A & B>" })))
        .unwrap();
    assert_eq!(message.find_part("html"), Some("<b>&lt;A &amp; B&gt;</b>"));
    assert_eq!(
        (message.find_part("text"), message.find_part("subject")),
        (Some("<A & B>"), Some("<A & B>"))
    );
}

#[test]
fn what_is_not_defined_is_named() {
    let failed = fails("{ text: \"Dear\\n{{ first_name }}\" }", json!({}));
    assert_eq!(failed, "part `text`, line 2: `first_name` is not defined");
    let failed = fails("{ subject: '{{ data.cart.total }}' }", json!({}));
    assert_eq!(
        failed,
        "part `subject`, line 1: `data.cart.total` is not defined"
    );
    assert!(fails("{ text: '{% if vip %}x{% endif %}' }", json!({})).contains("is not defined"));
    let given = composer("{ text: \"{{ name|default('you') }}\" }")
        .preview_message(&recipient(json!({})))
        .unwrap();
    assert_eq!(given.find_part("text"), Some("you"));
}

#[test]
fn a_template_that_cannot_be_read_says_where() {
    let refused =
        TemplateComposer::new(&campaign_with("{ text: \"a\\n{{ name \" }", "")).unwrap_err();
    assert_eq!((refused.part.as_str(), refused.line), ("text", Some(2)));
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
fn nothing_begins_a_header() {
    for part in ["subject", "from", "reply_to", "x-anything"] {
        for end in ["\n", "\r", "\r\n"] {
            let name = format!("Ada{end}Bcc: eve@example.com");
            let failed = fails(
                &format!("{{ {part}: '{{{{ name }}}}' }}"),
                json!({ "name": name }),
            );
            assert!(failed.contains("more than one line"), "{failed}");
        }
    }
    let campaign = campaign_with("{ text: a }", "unsubscribe: '{{ name }}'");
    assert!(
        TemplateComposer::new(&campaign)
            .unwrap()
            .preview_message(&recipient(json!({ "name": "a\nb" })))
            .is_err()
    );
    assert!(fails("{ subject: '{{ name }}' }", json!({ "name": "a\0b" })).contains("control"));
}

#[test]
fn a_file_with_one_line_is_one_line() {
    let message = composer("{ subject: \"Hello\\n\" }")
        .preview_message(&recipient(json!({})))
        .unwrap();
    assert_eq!(message.find_part("subject"), Some("Hello"));
}

#[test]
fn who_it_is_from_is_an_address() {
    let failed = fails("{ from: '{{ name }}' }", json!({ "name": "Ada" }));
    assert!(failed.contains("part `from`: is no address"), "{failed}");
    assert!(
        composer("{ from: '{{ name }} <a@example.com>' }")
            .preview_message(&recipient(json!({ "name": "Ada" })))
            .is_ok()
    );
}

#[test]
fn a_template_ends() {
    let nested =
        "{% for a in range(90000) %}{% for b in range(90000) %}{{ b }}{% endfor %}{% endfor %}";
    let failed = fails(&format!("{{ text: \"{nested}\" }}"), json!({}));
    assert!(
        failed.contains("too many steps") || failed.contains("longer than"),
        "{failed}"
    );
    let silent = nested.replace("{{ b }}", "{% if b < 0 %}x{% endif %}");
    assert!(fails(&format!("{{ text: \"{silent}\" }}"), json!({})).contains("too many steps"));
    let long = format!(
        "{{% for a in range(2000) %}}{}{{% endfor %}}",
        "x".repeat(1_000)
    );
    assert!(
        fails(&format!("{{ text: \"{long}\" }}"), json!({})).contains("longer than 1048576 bytes")
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
fn a_template_does_not_use_up_the_memory() {
    let refused = |text: &str| {
        let mut campaign = campaign_with(LETTER, "");
        campaign.template.insert("text".into(), text.to_owned());
        match TemplateComposer::new(&campaign) {
            Ok(composer) => composer
                .preview_message(&recipient(json!({ "name": "x".repeat(1_000), "n": 5_000 })))
                .err(),
            Err(unfit) => Some(unfit.to_string()),
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
        let words = refused(&text).unwrap_or_default();
        let known = [
            "could come to",
            "longer",
            "may repeat",
            "there is no filter",
            "`map` takes",
            "a format has",
            "needs a value",
            "no blocks",
        ];
        assert!(known.iter().any(|known| words.contains(known)), "{text}: {words}");
    }
    for text in [
        "{% set full = name ~ ' ' ~ name %}{% set greeting = 'Dear ' ~ full %}{{ greeting }}",
        "{% set total = 0 %}{% for i in range(3000) %}{% set total = total + i %}{% endfor %}{{ total }}",
        "{{ n|float * 1.19 }} {{ '%.2f'|format(n * 2) }} {{ n * 3 }} {{ (n|int * n|int)|round(2) }}",
        "{% for part in name|list %}{% if loop.index < 5 %}{{ part|upper ~ loop.index }}{% endif %}{% endfor %}",
        "{{ [name, name]|join(', ')|replace('x', 'y')|title }} {{ data|tojson|length }} {{ name|urlencode }}",
        "{{ [3, 1]|sort|map('string')|join('-') }} {{ name|default('you')|trim|e }}",
    ] {
        assert_eq!(refused(text), None, "{text}");
    }
}

#[test]
fn a_template_does_not_use_up_the_stack() {
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
            drop(composer.map(|it| it.preview_message(&recipient(json!({ "name": "Ada" })))));
        }
    }
    let growing =
        "{% set n = namespace(x=1) %}{% for i in range(60000) %}{% set n.x = [n.x] %}{% endfor %}";
    assert!(fails(&format!("{{ text: \"{growing}\" }}"), json!({})).contains("namespace"));
}

proptest! {
    #[test]
    fn no_row_gets_a_line_into_a_header_or_a_tag_into_html(name in "(\\PC|[\r\n\t\u{0}\u{b}]|<script>){0,20}") {
        let composer = composer("{ subject: 'Hello {{ name }}', html: '{{ name }}' }");
        if let Ok(message) = composer.preview_message(&recipient(json!({ "name": name }))) {
            prop_assert!(!message.find_part("subject").unwrap().contains(['\r', '\n', '\0']));
            prop_assert!(!message.find_part("html").unwrap().contains('<'));
        }
    }

    #[test]
    fn no_template_makes_it_panic(text in "(\\PC|\\{\\{|\\}\\}|\\{%|%\\}| if | for | in | set |name|\\||\\(|\\)){0,30}") {
        let mut campaign = campaign_with(LETTER, "");
        campaign.template.insert("text".into(), text);
        if let Ok(composer) = TemplateComposer::new(&campaign) {
            drop(composer.preview_message(&recipient(json!({ "name": "Ada" }))));
        }
    }
}
