"""From what the user typed to a session that is ready to be asked: every step of a run, in its order.

options    a run as it was asked for
what       the kit, its agent and its plan; everything that can be wrong without an engine is found here (code 2, 3)
prepared   grants: what the kit wants beyond the default profile (`relaxed`, `network`), against what was granted
           (`grants`, code 6); where: the workspace (`workplace`, code 2)
building   the engine, connected (code 4); the image, found by its plan or built (code 5)
opening    sandbox: the janitor first, then the container (`orders`, `locks`, code 3, 4); session: the guest is up and
           has been told its agent (`models`, `telling`)

Beside that way: `existing` asks for a sandbox that is there as it was made, `entering` gets into one to run commands,
`shared` and `fresh` open many sessions in one process.
"""

from runner.launch.building import connect, find_image
from runner.launch.opening import create_sandbox, open_session
from runner.launch.options import Options
from runner.launch.prepared import Prepared, prepare

__all__ = ["Options", "Prepared", "connect", "create_sandbox", "find_image", "open_session", "prepare"]
