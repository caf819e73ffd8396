from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Acknowledge(_message.Message):
    __slots__ = ["received"]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    received: int
    def __init__(self, received: _Optional[int] = ...) -> None: ...

class AskTopology(_message.Message):
    __slots__ = ["protocol_version"]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    def __init__(self, protocol_version: _Optional[int] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ["kinds", "spans"]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedCompositeFieldContainer[KindRun]
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    def __init__(self, kinds: _Optional[_Iterable[_Union[KindRun, _Mapping]]] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ...) -> None: ...

class Dismissed(_message.Message):
    __slots__ = ["missing"]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    missing: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, missing: _Optional[_Iterable[int]] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ["acknowledge", "ask_topology", "commit", "dismissed", "formed", "goodbye", "heartbeat", "heartbeat_ack", "leave", "leaving", "link_delayed", "point_set", "preemption_notice", "ready", "refused", "register", "resume", "resumed", "step_asked", "step_told", "suspect", "topology_told", "verdict"]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    ASK_TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    DISMISSED_FIELD_NUMBER: _ClassVar[int]
    FORMED_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_ACK_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    LINK_DELAYED_FIELD_NUMBER: _ClassVar[int]
    POINT_SET_FIELD_NUMBER: _ClassVar[int]
    PREEMPTION_NOTICE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    STEP_ASKED_FIELD_NUMBER: _ClassVar[int]
    STEP_TOLD_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_TOLD_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    acknowledge: Acknowledge
    ask_topology: AskTopology
    commit: Commit
    dismissed: Dismissed
    formed: Formed
    goodbye: Goodbye
    heartbeat: Heartbeat
    heartbeat_ack: HeartbeatAck
    leave: Leave
    leaving: Leaving
    link_delayed: LinkDelayed
    point_set: PointSet
    preemption_notice: PreemptionNotice
    ready: Ready
    refused: Refused
    register: Register
    resume: Resume
    resumed: Resumed
    step_asked: StepAsked
    step_told: StepTold
    suspect: Suspect
    topology_told: TopologyTold
    verdict: Verdict
    def __init__(self, register: _Optional[_Union[Register, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., suspect: _Optional[_Union[Suspect, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., heartbeat_ack: _Optional[_Union[HeartbeatAck, _Mapping]] = ..., formed: _Optional[_Union[Formed, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, _Mapping]] = ..., dismissed: _Optional[_Union[Dismissed, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., resumed: _Optional[_Union[Resumed, _Mapping]] = ..., acknowledge: _Optional[_Union[Acknowledge, _Mapping]] = ..., preemption_notice: _Optional[_Union[PreemptionNotice, _Mapping]] = ..., step_asked: _Optional[_Union[StepAsked, _Mapping]] = ..., step_told: _Optional[_Union[StepTold, _Mapping]] = ..., point_set: _Optional[_Union[PointSet, _Mapping]] = ..., ask_topology: _Optional[_Union[AskTopology, _Mapping]] = ..., topology_told: _Optional[_Union[TopologyTold, _Mapping]] = ..., link_delayed: _Optional[_Union[LinkDelayed, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ...) -> None: ...

class Formed(_message.Message):
    __slots__ = ["epoch", "has_services", "job_id", "members"]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HAS_SERVICES_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    has_services: bool
    job_id: str
    members: _containers.RepeatedCompositeFieldContainer[MemberInfo]
    def __init__(self, job_id: _Optional[str] = ..., epoch: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberInfo, _Mapping]]] = ..., has_services: bool = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ["cause", "error", "phase"]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    cause: str
    error: str
    phase: str
    def __init__(self, phase: _Optional[str] = ..., error: _Optional[str] = ..., cause: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ["busy", "health", "healthy", "phase", "sequence", "step", "step_age"]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STEP_AGE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    busy: float
    health: str
    healthy: bool
    phase: str
    sequence: int
    step: int
    step_age: float
    def __init__(self, sequence: _Optional[int] = ..., phase: _Optional[str] = ..., healthy: bool = ..., health: _Optional[str] = ..., step: _Optional[int] = ..., step_age: _Optional[float] = ..., busy: _Optional[float] = ...) -> None: ...

class HeartbeatAck(_message.Message):
    __slots__ = ["host", "missing", "overdue", "sequence", "steps", "updates"]
    HOST_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    host: _containers.RepeatedCompositeFieldContainer[MemberInfo]
    missing: _containers.RepeatedScalarFieldContainer[int]
    overdue: _containers.RepeatedCompositeFieldContainer[Overdue]
    sequence: int
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    updates: _containers.RepeatedCompositeFieldContainer[MemberUpdate]
    def __init__(self, sequence: _Optional[int] = ..., missing: _Optional[_Iterable[int]] = ..., overdue: _Optional[_Iterable[_Union[Overdue, _Mapping]]] = ..., updates: _Optional[_Iterable[_Union[MemberUpdate, _Mapping]]] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., host: _Optional[_Iterable[_Union[MemberInfo, _Mapping]]] = ...) -> None: ...

class KindRun(_message.Message):
    __slots__ = ["count", "kind"]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    count: int
    kind: str
    def __init__(self, kind: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ["collectives", "timeout"]
    COLLECTIVES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    collectives: int
    timeout: float
    def __init__(self, timeout: _Optional[float] = ..., collectives: _Optional[int] = ...) -> None: ...

class Leaver(_message.Message):
    __slots__ = ["collectives", "first", "last"]
    COLLECTIVES_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    collectives: int
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., collectives: _Optional[int] = ...) -> None: ...

class Leaving(_message.Message):
    __slots__ = ["leavers"]
    LEAVERS_FIELD_NUMBER: _ClassVar[int]
    leavers: _containers.RepeatedCompositeFieldContainer[Leaver]
    def __init__(self, leavers: _Optional[_Iterable[_Union[Leaver, _Mapping]]] = ...) -> None: ...

class LinkDelayed(_message.Message):
    __slots__ = ["cause", "client_id", "is_refused"]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    IS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    cause: str
    client_id: int
    is_refused: bool
    def __init__(self, client_id: _Optional[int] = ..., cause: _Optional[str] = ..., is_refused: bool = ...) -> None: ...

class MemberInfo(_message.Message):
    __slots__ = ["address", "client_id", "hostname", "incarnation", "link_address", "pid"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LINK_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    address: str
    client_id: int
    hostname: str
    incarnation: int
    link_address: str
    pid: int
    def __init__(self, client_id: _Optional[int] = ..., address: _Optional[str] = ..., hostname: _Optional[str] = ..., pid: _Optional[int] = ..., incarnation: _Optional[int] = ..., link_address: _Optional[str] = ...) -> None: ...

class MemberUpdate(_message.Message):
    __slots__ = ["client_id", "health", "healthy", "phase", "reconnects"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    RECONNECTS_FIELD_NUMBER: _ClassVar[int]
    client_id: int
    health: str
    healthy: bool
    phase: str
    reconnects: int
    def __init__(self, client_id: _Optional[int] = ..., phase: _Optional[str] = ..., healthy: bool = ..., health: _Optional[str] = ..., reconnects: _Optional[int] = ...) -> None: ...

class Overdue(_message.Message):
    __slots__ = ["age", "client_id"]
    AGE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    age: float
    client_id: int
    def __init__(self, client_id: _Optional[int] = ..., age: _Optional[float] = ...) -> None: ...

class PointSet(_message.Message):
    __slots__ = ["number", "reason", "step"]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    number: int
    reason: str
    step: int
    def __init__(self, number: _Optional[int] = ..., step: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class PreemptionNotice(_message.Message):
    __slots__ = ["client_id", "deadline_in", "reason"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_IN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    client_id: int
    deadline_in: float
    reason: str
    def __init__(self, client_id: _Optional[int] = ..., deadline_in: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ["digest", "kinds", "spans"]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    kinds: _containers.RepeatedCompositeFieldContainer[KindRun]
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    def __init__(self, digest: _Optional[bytes] = ..., kinds: _Optional[_Iterable[_Union[KindRun, _Mapping]]] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ["detail", "field", "ours", "yours"]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    OURS_FIELD_NUMBER: _ClassVar[int]
    YOURS_FIELD_NUMBER: _ClassVar[int]
    detail: str
    field: str
    ours: str
    yours: str
    def __init__(self, field: _Optional[str] = ..., yours: _Optional[str] = ..., ours: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ["address", "client_id", "device_type", "heartbeat_interval", "hostname", "incarnation", "job_name", "jobs_digest", "link_address", "num_clients", "package_version", "pid", "protocol_version"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    JOBS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    LINK_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NUM_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    address: str
    client_id: int
    device_type: str
    heartbeat_interval: float
    hostname: str
    incarnation: int
    job_name: str
    jobs_digest: str
    link_address: str
    num_clients: int
    package_version: str
    pid: int
    protocol_version: int
    def __init__(self, client_id: _Optional[int] = ..., num_clients: _Optional[int] = ..., job_name: _Optional[str] = ..., protocol_version: _Optional[int] = ..., package_version: _Optional[str] = ..., incarnation: _Optional[int] = ..., address: _Optional[str] = ..., hostname: _Optional[str] = ..., pid: _Optional[int] = ..., link_address: _Optional[str] = ..., device_type: _Optional[str] = ..., heartbeat_interval: _Optional[float] = ..., jobs_digest: _Optional[str] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ["client_id", "incarnation", "received"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    client_id: int
    incarnation: int
    received: int
    def __init__(self, client_id: _Optional[int] = ..., incarnation: _Optional[int] = ..., received: _Optional[int] = ...) -> None: ...

class Resumed(_message.Message):
    __slots__ = ["received"]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    received: int
    def __init__(self, received: _Optional[int] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ["client_id", "duration", "name", "start"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    client_id: int
    duration: float
    name: str
    start: float
    def __init__(self, name: _Optional[str] = ..., start: _Optional[float] = ..., duration: _Optional[float] = ..., client_id: _Optional[int] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ["age", "client_id", "step"]
    AGE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    age: float
    client_id: int
    step: int
    def __init__(self, client_id: _Optional[int] = ..., step: _Optional[int] = ..., age: _Optional[float] = ...) -> None: ...

class StepAsked(_message.Message):
    __slots__ = ["number"]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class StepTold(_message.Message):
    __slots__ = ["number", "step"]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    number: int
    step: int
    def __init__(self, number: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class Suspect(_message.Message):
    __slots__ = ["cause", "client_id"]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    cause: str
    client_id: int
    def __init__(self, client_id: _Optional[int] = ..., cause: _Optional[str] = ...) -> None: ...

class TopologyTold(_message.Message):
    __slots__ = ["counts", "locations", "reason"]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    locations: bytes
    reason: str
    def __init__(self, counts: _Optional[_Iterable[int]] = ..., locations: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ["address", "also", "cause", "client_id", "error", "hostname", "missing", "phase"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ALSO_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    address: str
    also: _containers.RepeatedScalarFieldContainer[int]
    cause: str
    client_id: int
    error: str
    hostname: str
    missing: _containers.RepeatedScalarFieldContainer[int]
    phase: str
    def __init__(self, error: _Optional[str] = ..., client_id: _Optional[int] = ..., address: _Optional[str] = ..., hostname: _Optional[str] = ..., phase: _Optional[str] = ..., cause: _Optional[str] = ..., missing: _Optional[_Iterable[int]] = ..., also: _Optional[_Iterable[int]] = ...) -> None: ...
