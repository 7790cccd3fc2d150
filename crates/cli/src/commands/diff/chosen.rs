//! What the user chose about a comparison: a config file, and flags that win over it. Everything is checked before a source is opened.

use super::{save, text_of};
use crate::{failure::Failure, open::Opening};
use std::path::PathBuf;
use twinscope_compare::{
    Settings,
    layout::parse_steps,
    mapfile, plan,
    settings::{LayoutOverride, Pattern},
};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What is compared with what")]
pub(in crate::commands) struct Chosen {
    /// Rules in the order they are tried: manual, layer_stage, exact, normalized, pattern, plugin, fuzzy, shape, values, exec:PROG
    #[arg(long = "match", value_name = "RULES")]
    rules: Option<String>,
    /// Candidate layer minus reference layer [default: found]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    layer_offset: Option<i64>,
    /// A regex whose named groups are equal for the tensors of a pair, or one for each side as 'REF=>CAND'. Repeat for more
    #[arg(long, value_name = "REGEX")]
    pattern: Vec<String>,
    /// How alike names must be for the fuzzy rule, 0 to 1
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    fuzzy_threshold: Option<f64>,
    /// Pairs by name, JSON or CSV
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Steps that line up the tensors a glob names, like '0_query: squeeze(0) permute(1,0,2)'. Repeat for more
    #[arg(long, value_name = "NAME: STEPS")]
    layout: Vec<String>,
    /// Leave out tensors whose name, on either side, matches. Repeat for more
    #[arg(long, value_name = "GLOB")]
    skip: Vec<String>,
    /// Allowed difference as a fraction of the reference value; with it NumPy's rule decides alone
    #[arg(long, value_name = "FRACTION", allow_negative_numbers = true)]
    rtol: Option<f64>,
    /// Allowed difference in itself; with it NumPy's rule decides alone
    #[arg(long, value_name = "DIFFERENCE", allow_negative_numbers = true)]
    atol: Option<f64>,
    /// Do not look for the causes of divergences
    #[arg(long)]
    no_causes: bool,
    /// All of these from a file, TOML or JSON; flags win
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the settings that were used, defaults included
    #[arg(long, value_name = "FILE")]
    save_config: Option<PathBuf>,
}

impl Chosen {
    pub(in crate::commands) fn settings(&self, opening: &Opening) -> anyhow::Result<Settings> {
        let mut settings = match &self.config {
            Some(path) => {
                Settings::from_text(&text_of(path)?).map_err(|error| within(path, &error))?
            }
            None => Settings::default(),
        };
        if let Some(rules) = &self.rules {
            settings
                .set_match(rules)
                .map_err(|error| Failure::new(format!("--match: {error}")))?;
        }
        settings.layer_offset = self.layer_offset.or(settings.layer_offset);
        settings.fuzzy_threshold = self.fuzzy_threshold.unwrap_or(settings.fuzzy_threshold);
        settings.rtol = self.rtol.or(settings.rtol);
        settings.atol = self.atol.or(settings.atol);
        settings.causes &= !self.no_causes;
        replace(&mut settings.only, opening.only().to_vec());
        replace(&mut settings.skip, self.skip.clone());
        replace(
            &mut settings.patterns,
            self.pattern.iter().map(|text| pattern(text)).collect(),
        );
        let layouts = self
            .layout
            .iter()
            .map(|text| LayoutOverride::parse(text))
            .collect::<Result<_, _>>();
        replace(
            &mut settings.layouts,
            layouts.map_err(|error| {
                Failure::new(format!("--layout: {error}"))
                    .hint("like --layout '0_query: squeeze(0)'")
            })?,
        );
        if let Some(path) = &self.map {
            settings.map = mapfile::parse(&text_of(path)?).map_err(|error| within(path, &error))?;
        }
        check(&settings)?;
        if let Some(path) = &self.save_config {
            save(path, &settings.to_toml()?)?;
        }
        Ok(settings)
    }
}

/// Everything that is wrong with settings whatever the sources are.
pub(super) fn check(settings: &Settings) -> anyhow::Result<()> {
    settings.check()?;
    for layout in &settings.layouts {
        parse_steps(&layout.steps)
            .map_err(|error| Failure::new(format!("the layout of `{}`: {error}", layout.name)))?;
        globset::Glob::new(&layout.name).map_err(|error| {
            Failure::new(format!("the layout of `{}`: {}", layout.name, error.kind()))
        })?;
    }
    Ok(plan::check(settings)?)
}

/// A flag that was given takes the place of what the file says.
fn replace<T>(setting: &mut Vec<T>, given: Vec<T>) {
    if !given.is_empty() {
        *setting = given;
    }
}

fn pattern(text: &str) -> Pattern {
    match text.split_once("=>") {
        Some((reference, candidate)) => Pattern {
            reference: reference.trim().to_owned(),
            candidate: Some(candidate.trim().to_owned()),
        },
        None => Pattern {
            reference: text.to_owned(),
            candidate: None,
        },
    }
}

fn within(path: &std::path::Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("`{}`: {error}", path.display()))
}
