//! The queue: jobs added to it, and served from it one after the other.

use std::sync::Arc;
use std::time::Duration;

use graphile_worker::tokio_postgres::TokioPostgresDatabase;
use graphile_worker::{
    Database, IntoTaskHandlerResult, JobSpec, Schema, TaskHandler, Worker, WorkerContext,
    WorkerRecoveryConfig, WorkerUtils,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use super::executing::{Ending, Executing, RunJob};
use super::{MachinesError, SILENT};

/// How often a job may fail, on whatever host, before it waits for `tidegate lab resume`. The queue
/// waits 3, 7, 20 and 55 s in between.
const ATTEMPTS_MAX: i16 = 5;

/// Connections of a worker to the queue: for jobs, heartbeats and recovery.
const CONNECTIONS: usize = 3;

/// How often a worker looks for jobs that nobody told it of, and whether it is to end.
const POLL: Duration = Duration::from_secs(1);
const CANCEL_POLL: Duration = Duration::from_millis(100);

/// How long a job that was put back may take to notice.
const GRACE: Duration = Duration::from_millis(200);

/// Adds jobs, in place of those with the same run.
pub(super) fn add(place: &str, jobs: &[RunJob]) -> Result<(), MachinesError> {
    let database = database(place)?;
    runtime()?.block_on(async {
        let utils = WorkerUtils::new(database, Schema::default());
        utils.migrate().await.map_err(failed)?;
        for &job in jobs {
            let spec = JobSpec {
                job_key: Some(format!("experiment {} run {}", job.experiment, job.place)),
                max_attempts: Some(ATTEMPTS_MAX),
                ..JobSpec::default()
            };
            utils.add_job(job, spec).await.map_err(failed)?;
        }
        Ok(())
    })
}

/// Does jobs until the worker is to end, or one is put back, or the queue fails.
pub(super) fn serve(
    place: &str,
    heartbeat: Duration,
    executing: &Arc<Executing>,
) -> Result<(), MachinesError> {
    let database = database(place)?;
    runtime()?.block_on(async {
        let end = Arc::new(Notify::new());
        let service = Service { executing: Arc::clone(executing), end: Arc::clone(&end) };
        let signal = Arc::clone(&end);
        let recovery = WorkerRecoveryConfig::default()
            .heartbeat_interval(heartbeat)
            .sweep_interval(heartbeat)
            .sweep_threshold(heartbeat * SILENT)
            .recovery_delay(Duration::ZERO);
        let worker = Worker::options()
            .database(database)
            .concurrency(1)
            .poll_interval(POLL)
            .worker_recovery(recovery)
            .listen_os_shutdown_signals(false)
            .shutdown_signal(async move { signal.notified().await })
            .shutdown_grace_period(GRACE)
            .shutdown_interrupted_job_retry_delay(Duration::ZERO)
            .add_extension(service)
            .define_job::<RunJob>()
            .init()
            .await
            .map_err(failed)?;
        tokio::select! {
            result = worker.run() => result.map_err(failed),
            () = watch(executing, &end) => Ok(()),
        }
    })
}

/// Tells the worker when it is to end; never ends itself.
async fn watch(executing: &Executing, end: &Notify) {
    loop {
        tokio::time::sleep(CANCEL_POLL).await;
        if executing.is_over() {
            end.notify_one();
        }
    }
}

/// What a job finds in the worker.
#[derive(Clone, Debug)]
struct Service {
    executing: Arc<Executing>,
    end: Arc<Notify>,
}

impl TaskHandler for RunJob {
    const IDENTIFIER: &'static str = "tidegate_run";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let Some(service) = context.extensions().get::<Service>().cloned() else {
            return Err("the worker has nobody to do it".to_owned());
        };
        let executing = Arc::clone(&service.executing);
        let ending = tokio::task::spawn_blocking(move || executing.do_job(self)).await;
        match ending {
            Ok(Ending::Done) => Ok(()),
            Ok(Ending::Failed(reason)) => Err(reason),
            Ok(Ending::PutBack) => {
                // A job that is still there when the worker ends is put back by the queue, as if it
                // had not been tried.
                service.end.notify_one();
                std::future::pending().await
            }
            Err(panic) => Err(panic.to_string()),
        }
    }
}

fn database(place: &str) -> Result<Database, MachinesError> {
    Ok(TokioPostgresDatabase::from_url(place, CONNECTIONS).map_err(failed)?.into())
}

/// All of the queue's work is on the calling thread; jobs have another.
fn runtime() -> Result<Runtime, MachinesError> {
    Builder::new_current_thread().enable_all().build().map_err(failed)
}

fn failed(error: impl std::error::Error) -> MachinesError {
    // The cause is in the sources, as often as not.
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    MachinesError::Queue(text)
}
