//! The knobs of receive queues. Linux has them in sysfs; here they are reached as all others, by
//! their path below `/sys`: `class/net/tun0/queues/rx-0/rps_cpus`.

use std::sync::Arc;

use super::{CpuMask, FlowTable, MAX_FLOWS, RxQueue};
use crate::interface::{Interface, Interfaces, LOOPBACK};
use crate::stack::Stack;
use crate::sysctl::SysctlError;

/// A knob of a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueKnob {
    RpsCpus,
    RpsFlowCnt,
}

/// Where a name leads.
struct Place {
    ifindex: u32,
    queue: usize,
    knob: QueueKnob,
}

impl QueueKnob {
    const ALL: [Self; 2] = [Self::RpsCpus, Self::RpsFlowCnt];

    fn name(self) -> &'static str {
        match self {
            Self::RpsCpus => "rps_cpus",
            Self::RpsFlowCnt => "rps_flow_cnt",
        }
    }

    fn print(self, queue: &RxQueue) -> String {
        match self {
            Self::RpsCpus => queue.cpus.to_string(),
            Self::RpsFlowCnt => {
                let flows = queue.flows.as_ref();
                flows.map_or(0, |flows| flows.len()).to_string()
            }
        }
    }

    /// Writes it to a queue. `None` for what it does not take.
    fn write(self, queue: &mut RxQueue, text: &str) -> Option<()> {
        match self {
            Self::RpsCpus => queue.cpus = CpuMask::parse(text)?,
            Self::RpsFlowCnt => {
                let flows: u32 = text.trim().parse().ok().filter(|n| *n <= MAX_FLOWS)?;
                queue.flows = match flows {
                    0 => None,
                    _ => Some(Arc::new(FlowTable::new(flows.next_power_of_two()))),
                };
            }
        }
        Some(())
    }

    fn expected(self) -> String {
        match self {
            Self::RpsCpus => format!(
                "cores below {} as hexadecimal bits, with commas between groups of eight digits \
                 (\"3\": cores 0 and 1; \"1,00000000\": core 32)",
                super::MAX_CPUS
            ),
            Self::RpsFlowCnt => format!("a number from 0 to {MAX_FLOWS}"),
        }
    }
}

impl Stack {
    /// Whether a name is that of a queue's knob, of whatever interface.
    pub(crate) fn is_queue_knob(name: &str) -> bool {
        path(name).is_some()
    }

    pub(crate) fn queue_knob(&self, name: &str) -> Result<String, SysctlError> {
        self.with_interfaces(|interfaces| {
            let place = find(interfaces, name).ok_or_else(|| not_found(name))?;
            let interface = interfaces.get(place.ifindex);
            let queue = interface.and_then(|interface| interface.rx.get(place.queue));
            queue
                .map(|queue| place.knob.print(queue))
                .ok_or_else(|| not_found(name))
        })
    }

    pub(crate) fn set_queue_knob(&self, name: &str, text: &str) -> Result<(), SysctlError> {
        let place = self
            .with_interfaces(|interfaces| find(interfaces, name))
            .ok_or_else(|| not_found(name))?;
        let mut masks = None;
        let mut is_right = true;
        let change = |interface: &mut Interface| {
            let Some(queue) = interface.rx.get_mut(place.queue) else {
                return;
            };
            let before = queue.cpus.clone();
            is_right = place.knob.write(queue, text).is_some();
            masks = Some((before, queue.cpus.clone()));
        };
        self.change_interface(place.ifindex, change)
            .map_err(|_| not_found(name))?;
        if let Some((before, after)) = masks {
            self.steering.mask_changed(&before, &after);
        }
        match is_right {
            true => Ok(()),
            false => Err(SysctlError::Invalid {
                name: name.to_owned(),
                value: text.to_owned(),
                expected: place.knob.expected(),
            }),
        }
    }

    /// Every knob of every queue, with its value.
    pub(crate) fn queue_knobs(&self) -> Vec<(String, String)> {
        self.with_interfaces(|interfaces| {
            // The loopback's packets are steered nowhere.
            let devices = interfaces
                .iter()
                .filter(|interface| interface.index != LOOPBACK);
            let queues = devices.flat_map(|interface| {
                let numbered = interface.rx.iter().enumerate();
                numbered.map(move |(number, queue)| (interface, number, queue))
            });
            queues
                .flat_map(|(interface, number, queue)| {
                    QueueKnob::ALL.map(|knob| {
                        let (name, knob_name) = (&interface.name, knob.name());
                        let path = format!("class/net/{name}/queues/rx-{number}/{knob_name}");
                        (path, knob.print(queue))
                    })
                })
                .collect()
        })
    }
}

fn find(interfaces: &Interfaces, name: &str) -> Option<Place> {
    let (interface, queue, knob) = path(name)?;
    let interface = interfaces.by_name(interface)?;
    let interface = Some(interface).filter(|interface| interface.index != LOOPBACK)?;
    (queue < interface.rx.len()).then_some(Place {
        ifindex: interface.index,
        queue,
        knob,
    })
}

/// Interface, queue and knob of a path.
fn path(name: &str) -> Option<(&str, usize, QueueKnob)> {
    let name = name.strip_prefix("/sys/").unwrap_or(name);
    let mut parts = name.strip_prefix("class/net/")?.split('/');
    let interface = parts.next()?;
    let (Some("queues"), Some(queue), Some(knob), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let number = queue.strip_prefix("rx-")?.parse().ok()?;
    let knob = QueueKnob::ALL
        .into_iter()
        .find(|known| known.name() == knob)?;
    Some((interface, number, knob))
}

fn not_found(name: &str) -> SysctlError {
    SysctlError::NotFound(name.to_owned())
}
