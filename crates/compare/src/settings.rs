//! Everything a user can choose about a comparison, as one value: from flags, from `--config FILE`, from the page.
//!
//! The file is TOML (JSON is read too); `--save-config` writes what was used, defaults included. Unknown keys are an error, so that a
//! typing mistake is not a silent default.

use serde::{Deserialize, Serialize};
pub use twinscope_report::{Names, Rule};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Rules in the order they are tried; what one rule pairs, the next ones do not see. Manual pairs always come first.
    pub rules: Vec<Rule>,
    /// Regexes with named groups; tensors whose groups are equal are a pair.
    pub patterns: Vec<Pattern>,
    /// Programs asked for pairs (`--match exec:PROG`).
    pub plugins: Vec<String>,
    /// How alike two names must be for `fuzzy`, 0 to 1.
    pub fuzzy_threshold: f64,
    /// Candidate layer minus reference layer, when the user knows it.
    pub layer_offset: Option<i64>,
    /// Pairs the user decided (`--map`).
    pub map: Vec<MapEntry>,
    /// Pairs that a rule would make and the user took apart.
    pub unpaired: Vec<MapEntry>,
    /// Layouts the user decided (`--layout 'NAME: permute(0,2,1) squeeze(0)'`).
    pub layouts: Vec<LayoutOverride>,
    /// Only tensors whose name, on either side, matches one of these globs; empty means all.
    pub only: Vec<String>,
    pub skip: Vec<String>,
    /// NumPy's rule instead of the noise model, when either is given.
    pub rtol: Option<f64>,
    pub atol: Option<f64>,
    /// Look for the causes of divergences.
    pub causes: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// Applied to reference names, and to candidate names unless `candidate` is given.
    pub reference: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<String>,
}

/// One pair by name. More than one name on a side: the parts, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapEntry {
    pub reference: Names,
    pub candidate: Names,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutOverride {
    /// A glob over reference names.
    pub name: String,
    /// `permute(0,2,1) squeeze(0)`
    pub steps: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rules: vec![
                Rule::LayerStage,
                Rule::Exact,
                Rule::Normalized,
                Rule::Pattern,
                Rule::Plugin,
                Rule::Fuzzy,
                Rule::Shape,
                Rule::Values,
            ],
            patterns: Vec::new(),
            plugins: Vec::new(),
            // Below this, names that share only `weight` and a layer number begin to pair.
            fuzzy_threshold: 0.8,
            layer_offset: None,
            map: Vec::new(),
            unpaired: Vec::new(),
            layouts: Vec::new(),
            only: Vec::new(),
            skip: Vec::new(),
            rtol: None,
            atol: None,
            causes: true,
        }
    }
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Where it stops being TOML, or settings, and why: one line, which every front end can show.
    #[error("line {line} of the settings: {message}")]
    Toml { line: usize, message: String },
    #[error("the settings are not valid JSON: {0}")]
    Json(serde_json::Error),
    #[error("the settings are not to be written: {0}")]
    Write(toml::ser::Error),
    #[error("`{key}` is {value}, which is not {wanted}")]
    Range {
        key: &'static str,
        value: f64,
        wanted: &'static str,
    },
    #[error("`{name}` is no rule{}; the rules are {}", nearest(.name), Rule::ALL.map(Rule::name).join(", "))]
    UnknownRule { name: String },
    #[error("`--match` names no rule")]
    NoRule,
    #[error("`exec:` names no program")]
    NoProgram,
    #[error("`{text}` is not `NAME: steps`")]
    Layout { text: String },
}

fn nearest(name: &str) -> String {
    let alike = |rule: &Rule| strsim::normalized_damerau_levenshtein(name, rule.name());
    let best = Rule::ALL
        .into_iter()
        .max_by(|a, b| alike(a).total_cmp(&alike(b)))
        .filter(|rule| alike(rule) >= 0.6);
    best.map_or_else(String::new, |rule| {
        format!(", did you mean `{}`", rule.name())
    })
}

impl Settings {
    /// The layout the user chose for a pair, by the reference's name. A glob that cannot be read was refused when the settings were
    /// checked.
    pub fn layout_of(&self, name: &str) -> Option<&LayoutOverride> {
        self.layouts.iter().find(|entry| {
            globset::Glob::new(&entry.name).is_ok_and(|glob| glob.compile_matcher().is_match(name))
        })
    }

    /// From a `--config` file's text: JSON when it begins with a brace, else TOML.
    pub fn from_text(text: &str) -> Result<Self, ConfigError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let settings: Self = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(ConfigError::Json)?
        } else {
            toml::from_str(text).map_err(|error: toml::de::Error| {
                let before = error
                    .span()
                    .and_then(|span| text.get(..span.start))
                    .unwrap_or_default();
                ConfigError::Toml {
                    line: before.matches('\n').count() + 1,
                    message: error.message().replace('\n', " "),
                }
            })?
        };
        settings.check()?;
        Ok(settings)
    }

    /// Everything, defaults included, for `--save-config`.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string_pretty(self).map_err(ConfigError::Write)
    }

    /// Whether the numbers make sense, wherever they came from.
    pub fn check(&self) -> Result<(), ConfigError> {
        let value = self.fuzzy_threshold;
        if !(0.0..=1.0).contains(&value) {
            return Err(ConfigError::Range {
                key: "fuzzy_threshold",
                value,
                wanted: "between 0 and 1",
            });
        }
        for (key, value) in [("rtol", self.rtol), ("atol", self.atol)] {
            if let Some(value) = value.filter(|value| !value.is_finite() || *value < 0.0) {
                return Err(ConfigError::Range {
                    key,
                    value,
                    wanted: "a number from 0",
                });
            }
        }
        Ok(())
    }

    /// What was chosen and has no effect: a slip that nothing else would tell.
    pub fn used_for_nothing(&self) -> Vec<String> {
        let chosen = self.rules != Self::default().rules;
        let needs = [
            (Rule::Pattern, !self.patterns.is_empty(), "--pattern"),
            (Rule::Plugin, !self.plugins.is_empty(), "exec:PROG"),
            // Manual pairs come first, whether the rule is named or not.
            (
                Rule::Manual,
                !self.map.is_empty() || !self.rules.contains(&Rule::Manual),
                "--map",
            ),
        ];
        let unused =
            |(rule, given, by): (Rule, bool, &str)| match (self.rules.contains(&rule), given) {
                (true, false) if chosen => Some(format!(
                    "the rule `{}` pairs nothing without {by}",
                    rule.name()
                )),
                (false, true) if rule != Rule::Manual => Some(format!(
                    "{by} pairs nothing: `{}` is not among the rules",
                    rule.name()
                )),
                _ => None,
            };
        needs.into_iter().filter_map(unused).collect()
    }

    /// `--match layer_stage,exact,exec:PROG`: the rules in this order and no others.
    pub fn set_match(&mut self, text: &str) -> Result<(), ConfigError> {
        let (mut rules, mut plugins) = (Vec::new(), Vec::new());
        for word in text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            let rule = match word.strip_prefix("exec:").map(str::trim) {
                Some("") => return Err(ConfigError::NoProgram),
                Some(program) => {
                    plugins.push(program.to_owned());
                    Rule::Plugin
                }
                None => Rule::from_name(word).ok_or_else(|| ConfigError::UnknownRule {
                    name: word.to_owned(),
                })?,
            };
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        if rules.is_empty() {
            return Err(ConfigError::NoRule);
        }
        self.rules = rules;
        // `plugin` by its name means the programs of the config file.
        if !plugins.is_empty() {
            self.plugins = plugins;
        }
        Ok(())
    }
}

impl LayoutOverride {
    /// `NAME: permute(0,2,1) squeeze(0)`. Names may hold colons, steps do not.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::Layout {
            text: text.to_owned(),
        };
        let (name, steps) = text
            .rsplit_once(':')
            .map(|(name, steps)| (name.trim(), steps.trim()))
            .ok_or_else(wrong)?;
        if name.is_empty() || steps.is_empty() || name.ends_with(':') {
            return Err(wrong());
        }
        Ok(Self {
            name: name.to_owned(),
            steps: steps.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_setting() -> Settings {
        Settings {
            rules: vec![Rule::Exact, Rule::Values],
            patterns: vec![Pattern {
                reference: r"(?<a>\d+)\.x".to_owned(),
                candidate: Some("(?<a>.)".to_owned()),
            }],
            plugins: vec!["./pair.py --fast".to_owned()],
            fuzzy_threshold: 0.5,
            layer_offset: Some(-3),
            map: vec![MapEntry {
                reference: Names::Many(vec!["q".to_owned(), "k".to_owned()]),
                candidate: Names::One("qk".to_owned()),
            }],
            layouts: vec![LayoutOverride {
                name: "a*".to_owned(),
                steps: "permute(0,2,1) squeeze(0)".to_owned(),
            }],
            only: vec!["*attn*".to_owned()],
            skip: vec!["x".to_owned()],
            rtol: Some(1e-5),
            atol: None,
            causes: false,
            unpaired: vec![MapEntry {
                reference: Names::One("a".to_owned()),
                candidate: Names::One("b".to_owned()),
            }],
        }
    }

    #[test]
    fn what_is_saved_is_read_back() {
        for settings in [Settings::default(), every_setting()] {
            assert_eq!(
                Settings::from_text(&settings.to_toml().unwrap()).unwrap(),
                settings
            );
            assert_eq!(
                Settings::from_text(&serde_json::to_string(&settings).unwrap()).unwrap(),
                settings
            );
        }
    }

    #[test]
    fn what_is_left_out_is_the_default() {
        assert_eq!(Settings::from_text("").unwrap(), Settings::default());
        assert_eq!(Settings::from_text("{}").unwrap(), Settings::default());
        let settings =
            Settings::from_text("rules = ['fuzzy', 'layer_stage']\nlayer_offset = 2").unwrap();
        assert_eq!(
            (settings.rules, settings.layer_offset),
            (vec![Rule::Fuzzy, Rule::LayerStage], Some(2))
        );
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it() {
        for text in [
            "fuzy_threshold = 0.5",
            "{\"fuzy_threshold\": 0.5}",
            "[[map]]\nreference = 'a'\ncandidate = 'b'\nfuzy_threshold = 1",
        ] {
            let error = Settings::from_text(text).unwrap_err().to_string();
            assert!(error.contains("fuzy_threshold"), "{error}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_errors() {
        let error = Settings::from_text("fuzzy_threshold = 1.5")
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "`fuzzy_threshold` is 1.5, which is not between 0 and 1"
        );
        assert!(Settings::from_text("rtol = -1.0").is_err());
        assert!(Settings::from_text("atol = nan").is_err());
    }

    #[test]
    fn match_gives_the_rules_in_order() {
        let mut settings = Settings::default();
        settings
            .set_match(" exact, exec:./pair.py -x ,layer_stage,exact")
            .unwrap();
        assert_eq!(
            settings.rules,
            [Rule::Exact, Rule::Plugin, Rule::LayerStage]
        );
        assert_eq!(settings.plugins, ["./pair.py -x"]);
        let error = settings
            .set_match("exact,layerstage")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(
                "`layerstage` is no rule, did you mean `layer_stage`; the rules are manual, "
            ),
            "{error}"
        );
        assert!(matches!(settings.set_match(","), Err(ConfigError::NoRule)));
        assert!(matches!(
            settings.set_match("exec:"),
            Err(ConfigError::NoProgram)
        ));
        assert_eq!(settings.rules.len(), 3, "a mistake changes nothing");
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let of = |rules: &str, settings: Settings| {
            let mut settings = settings;
            settings.set_match(rules).unwrap();
            settings.used_for_nothing()
        };
        assert!(Settings::default().used_for_nothing().is_empty());
        assert!(of("exact,values", Settings::default()).is_empty());
        assert!(of("pattern,manual,exec:x", every_setting()).is_empty());
        assert_eq!(
            of(
                "exact",
                Settings {
                    plugins: Vec::new(),
                    ..every_setting()
                }
            ),
            ["--pattern pairs nothing: `pattern` is not among the rules"]
        );
        let without = of("pattern,plugin,manual", Settings::default());
        assert_eq!(without.len(), 3);
        assert_eq!(without[2], "the rule `manual` pairs nothing without --map");
    }

    #[test]
    fn every_rule_has_the_name_it_is_saved_under() {
        for rule in Rule::ALL {
            assert_eq!(serde_json::to_value(rule).unwrap(), rule.name());
            assert_eq!(Rule::from_name(rule.name()), Some(rule));
        }
    }

    #[test]
    fn a_layout_is_a_name_and_steps() {
        let layout = LayoutOverride::parse("a::b.weight : permute(0,2,1) squeeze(0)").unwrap();
        assert_eq!(
            (layout.name.as_str(), layout.steps.as_str()),
            ("a::b.weight", "permute(0,2,1) squeeze(0)")
        );
        for text in ["", "a", "a:", ": squeeze(0)", "a::"] {
            assert!(LayoutOverride::parse(text).is_err(), "{text}");
        }
    }
}
