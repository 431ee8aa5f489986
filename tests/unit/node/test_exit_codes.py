"""How a node ends tells a service manager whether to start it again."""

from __future__ import annotations

import pytest

from veilwalk.core.errors import (
    ConfigError,
    InputFileError,
    InvalidParameterError,
    ProtocolError,
    SpoolError,
    TransportError,
    VeilwalkError,
)
from veilwalk.node.peer._process import as_exit_error


@pytest.mark.parametrize(
    "error",
    [InvalidParameterError("iteration", 2**32, "less"), ConfigError("no"), InputFileError("no"), VeilwalkError("no")],
)
def test_finding_01_whatever_ends_a_running_node_is_not_called_a_wrong_setting(error: VeilwalkError) -> None:
    """Who ends with 2 is left down; nobody may bring a running node to that from outside: it is a fault of ours, 70."""
    assert error.exit_code == 2
    fault = as_exit_error(error)
    assert not isinstance(fault, VeilwalkError)
    assert str(fault) == str(error)


@pytest.mark.parametrize(
    "error", [TransportError("in use"), SpoolError("full"), ProtocolError("over"), KeyError("ours")]
)
def test_what_others_mend_keeps_its_code(error: Exception) -> None:
    assert as_exit_error(error) is error
