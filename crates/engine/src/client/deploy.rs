//! Deployment of components: stores the code and binds the names of its functions to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use onward_base::{Scope, SharedText, is_unprintable};
use onward_execution::{GuestFunction, GuestFunctionKind};
use onward_journal::ComponentDigest;
use onward_store::tables::{ComponentRow, DeployedFunctionKind, FunctionRow};
use onward_store::{
    ColumnCodec as _, Commit, Error, RecordReader as _, RowChange, RowKey, TableScan,
};

use serde_json::value::RawValue;

use super::{ClientError, EngineClient};

/// Maximum number of retries of a deployment whose commit conflicts with another commit.
const DEPLOY_RETRIES_MAX: u32 = 20;

/// What a deployment does if another component has some of its function names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeoverPolicy {
    /// The deployment fails with [`ClientError::FunctionsTaken`].
    Refuse,
    /// The names are bound to the new component.
    Replace,
}

/// A function name that a deployment takes from another component.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionTakeover {
    /// The name.
    pub function: SharedText,
    /// The component that has it so far.
    pub component: ComponentDigest,
}

impl fmt::Display for FunctionTakeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.function, self.component)
    }
}

/// A stored component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentReceipt {
    /// The digest of the component.
    pub component: ComponentDigest,
    /// The function names that it took from other components.
    pub replaced: Vec<FunctionTakeover>,
}

/// A deployed function with the version of its row.
type VersionedFunction = (FunctionRow, u64);

impl EngineClient {
    /// Stores a component and binds the names of its functions to it from now on. The functions may
    /// send requests to `hosts`, as far as the process that runs them allows it.
    ///
    /// With [`TakeoverPolicy::Refuse`], it takes no names from another component. A component has
    /// no name of its own, so a deployment counts as a new build of an earlier component if it has
    /// all function names of that component, and of no second one.
    pub async fn deploy_component(
        &self,
        code: &[u8],
        functions: &[GuestFunction],
        hosts: &[String],
        policy: TakeoverPolicy,
    ) -> Result<DeploymentReceipt, ClientError> {
        for GuestFunction { name, .. } in functions {
            if name.chars().any(is_unprintable) {
                let name = name.escape_default().to_string();
                return Err(ClientError::UnprintableFunctionName(name));
            }
        }
        let mut tries = 0;
        loop {
            // A concurrent deployment is ordered before or after this one.
            match self
                .try_deploy_component(code, functions, hosts, policy)
                .await
            {
                Err(ClientError::Store(Error::Conflict(_))) if tries < DEPLOY_RETRIES_MAX => {
                    tries += 1
                }
                outcome => return outcome,
            }
        }
    }

    async fn try_deploy_component(
        &self,
        code: &[u8],
        functions: &[GuestFunction],
        hosts: &[String],
        policy: TakeoverPolicy,
    ) -> Result<DeploymentReceipt, ClientError> {
        let component_digest = ComponentDigest::from_component(code);
        let deployed = self.read_deployed_functions().await?;
        let replaced = find_takeovers(component_digest, functions, &deployed);
        if !replaced.is_empty() && policy == TakeoverPolicy::Refuse {
            return Err(ClientError::FunctionsTaken(replaced));
        }
        let now = self.store.now().await?;
        let text = stored_functions(functions)?;
        let hosts = SharedText::from(serde_json::to_string(hosts).map_err(Error::corrupt)?);
        let component = ComponentRow {
            component_digest,
            code: code.into(),
            functions: text,
            created_at: now,
        };
        let mut commit = Commit::new().insert_or_keep(&component);
        for function in functions {
            let row = FunctionRow {
                tenant_id: self.scope.tenant.clone(),
                project_id: self.scope.project.clone(),
                environment_id: self.scope.environment.clone(),
                name: (&*function.name).into(),
                kind: deployed_function_kind(function.kind),
                component_digest,
                hosts: hosts.clone(),
                deployed_at: now,
            };
            commit.changes.push(match deployed.get(&row.name) {
                Some((_, version)) => RowChange::update(&row, *version),
                None => RowChange::insert(&row),
            });
        }
        self.store.commit(commit).await?;
        Ok(DeploymentReceipt {
            component: component_digest,
            replaced,
        })
    }

    /// Reads all deployed functions of the scope, by name.
    async fn read_deployed_functions(
        &self,
    ) -> Result<BTreeMap<SharedText, VersionedFunction>, Error> {
        let Scope {
            tenant,
            project,
            environment,
        } = &self.scope;
        let mut scan = TableScan::all_rows::<FunctionRow>()
            .where_equal(tenant)
            .where_equal(project)
            .where_equal(environment);
        let mut all = BTreeMap::new();
        loop {
            let rows: Vec<VersionedFunction> = self.store.list_records(scan.clone()).await?;
            let Some((last, _)) = rows.last() else {
                return Ok(all);
            };
            scan = scan.starting_after(last);
            all.extend(rows.into_iter().map(|found| (found.0.name.clone(), found)));
        }
    }

    pub(super) async fn function_row(
        &self,
        name: &str,
    ) -> Result<Option<(FunctionRow, u64)>, Error> {
        let Scope {
            tenant,
            project,
            environment,
        } = &self.scope;
        let key = [
            tenant.to_value(),
            project.to_value(),
            environment.to_value(),
            SharedText::from(name).to_value(),
        ];
        self.store.read_record(RowKey(key.into())).await
    }
}

/// Returns the names that a new component would take from other components, in alphabetical order.
///
/// The one component all of whose names the new one has is its own previous build. If there are two
/// such components, neither is known to be that.
fn find_takeovers(
    new_digest: ComponentDigest,
    functions: &[GuestFunction],
    deployed: &BTreeMap<SharedText, VersionedFunction>,
) -> Vec<FunctionTakeover> {
    let new_names: BTreeSet<&str> = functions.iter().map(|function| &*function.name).collect();
    let others =
        || (deployed.values().map(|(row, _)| row)).filter(|row| row.component_digest != new_digest);
    let kept: BTreeSet<ComponentDigest> = others()
        .filter(|row| !new_names.contains(&*row.name))
        .map(|row| row.component_digest)
        .collect();
    let taken: Vec<&FunctionRow> = others()
        .filter(|row| new_names.contains(&*row.name))
        .collect();
    let superseded: BTreeSet<ComponentDigest> = (taken.iter().map(|row| row.component_digest))
        .filter(|digest| !kept.contains(digest))
        .collect();
    let previous_build = superseded.first().filter(|_| superseded.len() == 1);
    taken
        .into_iter()
        .filter(|row| Some(&row.component_digest) != previous_build)
        .map(|row| FunctionTakeover {
            function: row.name.clone(),
            component: row.component_digest,
        })
        .collect()
}

const fn deployed_function_kind(kind: GuestFunctionKind) -> DeployedFunctionKind {
    match kind {
        GuestFunctionKind::Workflow => DeployedFunctionKind::Workflow,
        GuestFunctionKind::Task => DeployedFunctionKind::Task,
    }
}

/// The stored form of a function of a component.
#[derive(serde::Serialize)]
struct StoredFunction<'a> {
    name: &'a str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<&'a RawValue>,
}

fn stored_functions(functions: &[GuestFunction]) -> Result<SharedText, Error> {
    let stored: Vec<StoredFunction<'_>> = functions
        .iter()
        .map(|function| StoredFunction {
            name: &function.name,
            kind: function.kind.as_str(),
            schema: function
                .schema
                .as_ref()
                .and_then(|schema| serde_json::from_str(schema.as_str()).ok()),
        })
        .collect();
    let text = serde_json::to_string(&stored).map_err(Error::corrupt)?;
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use onward_base::Timestamp;

    use super::*;

    fn digest(component: &str) -> ComponentDigest {
        ComponentDigest::from_component(component.as_bytes())
    }

    /// Deploys `new` after the pairs of a function and its component in `deployed`; returns what it
    /// takes over.
    fn takeovers(deployed: &[(&str, &str)], new: &str, names: &[&str]) -> Vec<String> {
        let row = |name: &str, component: &str| FunctionRow {
            tenant_id: "default".parse().unwrap(),
            project_id: "default".parse().unwrap(),
            environment_id: "default".parse().unwrap(),
            name: name.into(),
            kind: DeployedFunctionKind::Task,
            component_digest: digest(component),
            hosts: "[]".into(),
            deployed_at: Timestamp::EPOCH,
        };
        let deployed = deployed
            .iter()
            .map(|(name, component)| ((*name).into(), (row(name, component), 1)))
            .collect();
        let function = |name: &&str| GuestFunction {
            name: name.parse().unwrap(),
            kind: GuestFunctionKind::Task,
            schema: None,
        };
        let functions: Vec<GuestFunction> = names.iter().map(function).collect();
        find_takeovers(digest(new), &functions, &deployed)
            .iter()
            .map(|taken| taken.function.to_string())
            .collect()
    }

    #[test]
    fn a_new_build_has_all_names_of_one_earlier_component() {
        let none: [&str; 0] = [];
        let orders = [("order", "orders"), ("send_email", "orders")];
        assert_eq!(takeovers(&[], "orders", &["order"]), none);
        assert_eq!(takeovers(&orders, "orders", &["order", "send_email"]), none);
        assert_eq!(
            takeovers(&orders, "orders 2", &["order", "send_email"]),
            none
        );
        let more = ["order", "send_email", "send_sms"];
        assert_eq!(takeovers(&orders, "orders 2", &more), none);
        assert_eq!(takeovers(&orders, "other", &["refund"]), none);
        assert_eq!(
            takeovers(&orders, "journals", &["send_email", "chain"]),
            ["send_email"]
        );
        assert_eq!(takeovers(&orders, "orders 2", &["order"]), ["order"]);
    }

    #[test]
    fn names_of_a_second_component_are_taken_over() {
        let two = [
            ("order", "orders"),
            ("send_email", "mails"),
            ("send_sms", "mails"),
        ];
        assert_eq!(
            takeovers(&two, "orders 2", &["order", "send_email"]),
            ["send_email"]
        );
        let all = ["order", "send_email", "send_sms"];
        assert_eq!(takeovers(&two, "all", &all), all);
        // A component that lost a name does not take it back unnoticed.
        assert_eq!(
            takeovers(&two, "orders", &["order", "send_sms"]),
            ["send_sms"]
        );
    }
}
