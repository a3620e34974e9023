"""Turn a `Plan` into an image.

dockerfile   the Dockerfile a person can read, and the files it copies
program      the guest, its libraries and the ready-made hooks: the last layer
settings     the host's index, proxy and certificates, for the length of a build
base         what the image starts from: present, pulled, or bootstrapped from Debian's packages
build        the tag, "nothing to build", and the build
events       what a build tells while it goes on
"""

from runner.images.build import Image, ensure, tag
from runner.images.events import Event, Note, Output, Progress, Ready, Step

__all__ = ["Event", "Image", "Note", "Output", "Progress", "Ready", "Step", "ensure", "tag"]
